-- Decides one ask by another script, or by a second one if that leaves it, and holds what it took:
-- see core.Hold.
--
-- KEYS      those of the script; then of each charge that is held the key of its holds, and then
--           of each a sorted set for it: see held.lua
-- ARGV      those of the script, but for the number of the call; then the ms for which an end is
--           remembered; the id, and for each charge that is held a byte: its number, 64 more if it
--           stays charged when the hold ends, and 128 more if what remained is needed to give
--           units back; the us for which the hold lives; the number of the call
-- reply     what the script replies. If it took nothing since holds on the keys are to be known
--           first, the second is below 0: the time; -2, or -3 if the hold lives already, -4 if it
--           was settled of late, -5 if it has ended, and is to be ended first; of each held charge
--           the units that it has taken, if the hold lives; how many holds on its keys are to be
--           ended, and of each its charge and id:6+6; then, for -2 and -3, what the script replies
--           behind its time, and the number of the call. A call that comes after its deadline has
--           the first and the last only. If no script wrote what holds of a charge are in, all
--           between these is its number, below 0, and no units were taken

local function decide(KEYS, ARGV)
INNER
end
local function decide_left(KEYS, ARGV)
OTHER
end

local call, pcall, byte, find, format, sub = redis.call, redis.pcall, string.byte, string.find, string.format, string.sub
local last = #ARGV
local now, deadline, grace, list = ARGV[1], ARGV[2] + 0, ARGV[3] + 0, ARGV[5]
local life, id, memory, flags = ARGV[last - 1] + 0, sub(ARGV[last - 2], 1, 24), ARGV[last - 3] + 0, sub(ARGV[last - 2], 25)
local H, few, usual = #flags, {nil, nil, nil, nil}, true
local first = #KEYS - 2*H
if now ~= '' then
  now = now + 0
else
  local t = call('TIME')
  now = t[1]*1000000 + t[2]
  if now > deadline and deadline > 0 then return {now, ARGV[last] + 0} end
end
ARGV[1] = now

for h = 1, H do -- each key has few holds, of which none has ended
  local value = pcall('GET', KEYS[first + h])
  if value then
    usual = type(value) == 'string' and byte(value) == 72 and #value < 3000 and (#value - 17) % 94 == 0 and not find(value, id, 18, true)
    local soonest = usual and tonumber(sub(value, 2, 17))
    if soonest and soonest <= now then -- some have been settled, or extended, or are to be forgotten
      local rest = ''
      for i = 18, #value, 94 do
        local state, stop = byte(value, i + 24), tonumber(sub(value, i + 25, i + 40)) or 0
        if stop > now then
          if soonest <= now or stop < soonest then soonest = stop end
          rest = rest .. sub(value, i, i + 93)
        elseif state ~= 69 and state ~= 83 then
          usual = false
        end
      end
      value = soonest > now and 'H' .. format('%16.0f', soonest) .. rest or nil
    end
    usual = usual and soonest
    if not usual then break end
    few[h] = value
  elseif h == 1 and H > 1 and call('EXISTS', unpack(KEYS, first + 2, first + H)) == 0 then
    break -- most keys have no holds
  end
end

local stop = now + life
if usual then
  local reply = decide(KEYS, ARGV)
  if #reply == 3 and reply[2] == 0 then reply = decide_left(KEYS, ARGV) end -- see takeone.lua
  if #reply < 3 or reply[2] < 1 then return reply end
  local small = format('%d', 4294967296) ~= '4294967296' -- a server of 32 bits
  local times = format(small and '%16.0f%16.0f' or '%16d%16d', stop, now)
  local usually = life + 1000*memory
  local ends, begin, lasts, ttl = sub(times, 1, 16), 'H' .. sub(times, 1, 16), nil, nil
  for h = 1, H do
    local flag = byte(flags, h)
    local c = flag % 64
    local units, reset = sub(list, 8*c - 5, 8*c), reply[3*c + 2]
    if units ~= '\0\0\0\0\0\0' then
      local key, value, before, rest = KEYS[first + h], few[h], begin, '0000000000000000000000000000000'
      if flag > 127 then rest = format(small and '%15.0f%16.0f' or '%15d%16d', reply[3*c], reset) end
      -- for as long as the units may count, since nobody may come before
      if reset < usually then reset = usually end
      if reset ~= lasts then lasts, ttl = reset, format(small and '%.0f' or '%d', (reset - reset % 1000)/1000 + grace + 1) end
      local age = ttl
      if value then
        local left = call('PTTL', key)
        if left > ttl + 0 then age = left end
        before = (ends < sub(value, 2, 17) and begin or sub(value, 1, 17)) .. sub(value, 18)
      end
      call('PSETEX', key, age, before .. id .. (flag % 128 > 63 and 'K' or 'L') .. times .. units .. rest)
    end
  end
  return reply
end

HELD
-- a half of an id, in two, since a server of 32 bits reads no longer number of another base
local function half_of(id, i) return tonumber(sub(id, i, i + 5), 16)*16777216 + tonumber(sub(id, i + 6, i + 11), 16) end

local found, out, over, soonests, all = 0, {now, 0}, {}, {}, {}
for h = 1, H do
  local hash, ends, c = KEYS[first + h], KEYS[first + H + h], byte(flags, h) % 64
  local soonest, lives, _, state, stop, n = read_hold(hash, ends, id, now)
  if soonest == false then return {now, -c, ARGV[last] + 0} end
  local units = 0
  if state == 'L' and stop + 0 > now then
    found, units = math.max(found, 1), n + 0
  elseif state == 'L' then
    found = 3
  elseif state == 'S' and stop + 0 > now then
    found = math.max(found, 2)
  end
  out[#out + 1] = units
  if soonest and soonest <= now then
    for _ = 1, 32 do -- holds that were settled may stand before those that are over
      local list, some = pcall('ZRANGEBYSCORE', ends, '-inf', text_of(now), 'LIMIT', '0', '8'), #over
      if list.err then return {now, -c, ARGV[last] + 0} end
      for _, other in ipairs(list) do
        local state, stop = parse_hold(call('HGET', hash, other) or '')
        if state == 'L' and #other == 24 and match(other, '^%x+$') then
          over[#over + 1], over[#over + 2], over[#over + 3] = c, half_of(other, 1), half_of(other, 13)
        elseif state and state ~= 'L' and stop + 0 > now then
          call('ZADD', ends, stop, other)
        else
          call('HDEL', hash, other)
          call('ZREM', ends, other)
        end
      end
      if #list < 8 or #over > some then break end
    end
    soonest = tonumber(call('ZRANGE', ends, '0', '0', 'WITHSCORES')[2])
    if soonest then call('HSET', hash, 'n', text_of(soonest)) else call('DEL', hash) end
  end
  soonests[h], all[h] = soonest, soonest and lives
end
out[2], out[#out + 1] = -2 - found, #over / 3
for i = 1, #over do out[#out + 1] = over[i] end
if found >= 2 then
  out[#out + 1] = ARGV[last] + 0
  return out
end

if found == 1 then -- what is held was charged already
  for h = 1, H do
    local c = byte(flags, h) % 64
    list = sub(list, 1, 8*c - 6) .. string.rep('\0', 6) .. sub(list, 8*c + 1)
  end
  ARGV[5] = list
end
local reply = decide(KEYS, ARGV)
if #reply == 3 and reply[2] == 0 then reply = decide_left(KEYS, ARGV) end
for i = 2, #reply do out[#out + 1] = reply[i] end
if found == 1 or #reply < 3 or reply[2] < 1 then return out end

local line = 'L' .. string.rep(' ' .. WHOLE, 6)
for h = 1, H do
  local c = byte(flags, h) % 64
  local units = 0
  for i = 8*c - 5, 8*c do units = units*256 + byte(list, i) end
  if units > 0 then
    local hold = format(line, stop, units, now, reply[3*c], reply[3*c + 2], byte(flags, h) % 128 > 63 and units or 0)
    local least = math.max(stop + 1000*memory, now + reply[3*c + 2]) + 1000*grace
    write_hold(KEYS[first + h], KEYS[first + H + h], id, hold, stop, soonests[h], all[h], least, now)
  end
end
return out
