-- Begins the life of holds anew: see hold.lua.
--
-- KEYS      two for each hold, as in hold.lua
-- ARGV[1]   now in us since the epoch; '' for the time of Redis, as always but in tests
-- ARGV[2]   ms that each key outlives its last unit
-- ARGV[3]   the ms for which an end is remembered
-- ARGV[4…]  two for each hold: its id, and the us for which it lives
-- reply     for each hold 1 if it lived, or 0

local call, format = redis.call, string.format
local now, grace, memory = tonumber(ARGV[1]), ARGV[2] + 0, ARGV[3] + 0
if not now then
  local t = call('TIME')
  now = t[1]*1000000 + t[2]
end
local out = {}
for k = 1, #KEYS / 2 do
  local hash, ends, id, life = KEYS[2*k - 1], KEYS[2*k], ARGV[2*k + 2], ARGV[2*k + 3] + 0
  local got = call('HMGET', hash, id, 'n', 't')
  local hold = got[1]
  local state, stop, rest
  if hold then state, stop, rest = string.match(hold, '^(%u) (%d+)(.*)$') end
  out[k] = 0
  if state == 'L' and stop + 0 > now then
    out[k] = 1
    local stop, soonest, kept = now + life, got[2] + 0, got[3] + 0
    local least = stop + 1000*(memory + grace)
    call('HSET', hash, id, format('L %.0f%s', stop, rest))
    call('ZADD', ends, format('%.0f', stop), id)
    if stop < soonest then call('HSET', hash, 'n', format('%.0f', stop)) end
    if kept < least then
      call('HSET', hash, 't', format('%.0f', 2*least - now)) -- so that most extensions change nothing
      for k = 2*k - 1, 2*k do call('PEXPIRE', KEYS[k], format('%.0f', (2*least - 2*now) / 1000)) end
    end
  end
end
return out
