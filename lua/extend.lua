-- Begins the life of holds anew: see hold.lua.
--
-- KEYS      two for each hold, as in hold.lua
-- ARGV[1]   now in us since the epoch; '' for the time of Redis, as always but in tests
-- ARGV[2]   ms that each key outlives its last unit
-- ARGV[3]   the ms for which an end is remembered
-- ARGV[4…]  two for each hold: its id, and the us for which it lives
-- reply     for each hold 1 if it lived, or 0

HELD
local now, grace, memory = time_of(ARGV[1]), ARGV[2] + 0, ARGV[3] + 0
local out = {}
for k = 1, #KEYS / 2 do
  local hash, ends, id, life = KEYS[2*k - 1], KEYS[2*k], ARGV[2*k + 2], ARGV[2*k + 3] + 0
  local value = pcall('GET', hash)
  local place = type(value) == 'string' and match(value, '^H *%d+') and (#value - 17) % 94 == 0 and string.find(value, id, 18, true)
  out[k] = 0
  if place then -- most often
    if match(value, '^[LK]', place + 24) and (tonumber(sub(value, place + 25, place + 40)) or 0) > now then
      out[k] = 1
      local stop, left, least = format('%16.0f', now + life), call('PTTL', hash), life/1000 + memory + grace
      if left > least then least = left end
      value = (stop < sub(value, 2, 17) and 'H' .. stop or sub(value, 1, 17)) .. sub(value, 18, place + 24) .. stop .. sub(value, place + 41)
      call('PSETEX', hash, format('%.0f', least), value)
    end
  elseif type(value) == 'table' then
    local soonest, lives, hold, state, stop = read_hold(hash, ends, id, now)
    if state == 'L' and stop + 0 > now then
      out[k] = 1
      local rest = sub(hold, #stop + 3)
      stop = now + life
      write_hold(hash, ends, id, 'L ' .. text_of(stop) .. rest, stop, soonest, lives, stop + 1000*(memory + grace), now)
    end
  end
end
return out
