-- A number as six big-endian bytes.

local function be48(x)
  local f = x % 256; x = (x - f) / 256
  local e = x % 256; x = (x - e) / 256
  local d = x % 256; x = (x - d) / 256
  local c = x % 256; x = (x - c) / 256
  local b = x % 256
  return char((x - b) / 256, b, c, d, e, f)
end
