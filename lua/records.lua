-- Records of one size, each beginning with a time of 7 bytes, oldest first.
--
-- @needs small.lua

-- how many of them are of times up to `at`
local function records_until(records, size, at)
  local low, high = 0, #records / size
  while low < high do
    local middle = (low + high - (low + high) % 2) / 2
    if u56(records, middle*size + 1) <= at then low = middle + 1 else high = middle end
  end
  return low
end
