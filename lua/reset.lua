-- Forgets keys of rules, and marks them: debts that are older are not charged any more.
--
-- KEYS      of each: the key of its state, of what was given back to it, the two of its holds,
--           and that of its mark
-- ARGV[1]   now in us since the epoch; '' for the time of Redis, as always but in tests
-- ARGV[2]   ms for which the marks are kept
-- reply     how many states and the like there were
--
-- A mark is P and the time of the last reset, 7 bytes; or see lost.lua.
-- @value P 8

local now = tonumber(argv[1])
if not now then
  local t = call('TIME')
  now = t[1]*1000000 + t[2]
end
local n = 0
for k = 1, #keys, 5 do
  n = n + call('DEL', keys[k], keys[k + 1], keys[k + 2], keys[k + 3])
  call('SET', keys[k + 4], 'P' .. be56(now), 'PX', argv[2])
end
return {n}
