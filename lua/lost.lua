-- Says how long ago keys were found to have lost all units, or that they were reset. A key that
-- has or had no state, and was not reset, is found now: the caller knows of units there.
--
-- KEYS      of each: the key of its state and of its mark
-- ARGV[1]   now in us since the epoch; '' for the time of Redis, as always but in tests
-- ARGV[2]   when the caller knows that they had no state, in us, or 0
-- ARGV[…]   of each: ms for which units there matter
-- reply     us of each; -1 if it was not; -2 if it was reset
--
-- A mark is Q and the time, 7 bytes; or see reset.lua.
-- @value Q 8

local now = tonumber(argv[1])
if not now then
  local t = call('TIME')
  now = t[1]*1000000 + t[2]
end
local empty, out = tonumber(argv[2]), {}
for i = 1, #keys / 2 do
  local mark = redis.pcall('GET', keys[2*i])
  if not mark and (empty > 0 or call('EXISTS', keys[2*i - 1]) == 0) then
    mark = 'Q' .. be56(empty > 0 and empty or now)
    call('SET', keys[2*i], mark, 'PX', argv[i + 2])
  end
  local kind = type(mark) == 'string' and sub(mark, 1, 1)
  out[i] = kind == 'Q' and math.max(0, now - u56(mark, 2)) or kind == 'P' and -2 or -1
end
return out
