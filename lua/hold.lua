-- Decides one ask by another script, or by a second one if that leaves it, and holds what it took: see core.Hold.
--
-- KEYS      those of the script; then of each charge that is held two: a hash of its holds by
--           their ids, and a sorted set of the ids by the time at which they end, or are
--           forgotten at the earliest
-- ARGV      those of the script, but for the number of the call; then the id; the us for which
--           the hold lives; a digit for each charge of the ask: 0 it is not held, 1 it is, 2 it
--           stays charged when the hold ends; the ms for which an end is remembered; the number
--           of the call
-- reply     the time; 0, or 1 if the hold lives already, 2 if it was settled of late, 3 if it
--           has ended, and is to be ended first; of each held charge the units that it has
--           taken, if the hold lives; how many holds on its keys are to be ended, and of each
--           its charge and id:6+6; then, for 0 and 1, what the script replies behind its time,
--           and the number of the call. A call that comes after its deadline has the first and
--           the last only. If no script wrote what holds of a charge are in, all between these is
--           its number, below 0, and no units were taken
--
-- A hold is text: L if it lives, E if it has ended, S if it was settled; the time at which it
-- ends or is forgotten; the units that count for it; unless it was settled, of the admission its
-- time, what remained, and the us until the quota was full; the units that stay when it ends.
-- In the sorted set it stays where it would have ended, if it is not forgotten before, until it
-- is looked at then. Two more fields of the hash are times: before n nothing ends, and until t
-- the two keys live.
--
-- @needs held.lua

local function decide(KEYS, ARGV)
INNER
end
local function decide_left(KEYS, ARGV)
OTHER
end

local last = #ARGV
local number, memory, flags, life, id = ARGV[last] + 0, ARGV[last - 1] + 0, ARGV[last - 2], ARGV[last - 3] + 0, ARGV[last - 4]
local args = {unpack(ARGV, 1, last - 5)}
args[#args + 1] = number
local now, deadline, grace = time_of(ARGV[1]), ARGV[2] + 0, ARGV[3] + 0
if now > deadline and deadline > 0 then return {now, number} end
args[1] = text_of(now)

local first = #KEYS - 2*#string.gsub(flags, '0', '')
local found, out, over, at, soonests, lives = 0, {now, 0}, {}, first, {}, {}
for c = 1, #flags do
  if sub(flags, c, c) ~= '0' then
    local hash, ends = KEYS[at + 1], KEYS[at + 2]
    at = at + 2
    local soonest, lasts, _, state, stop, n = read_hold(hash, id)
    if soonest == false then return {now, -c, number} end
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
      local list = redis.pcall('ZRANGEBYSCORE', ends, '-inf', text_of(now), 'LIMIT', '0', '8')
      if list.err then return {now, -c, number} end
      for _, other in ipairs(list) do
        local state, stop = parse_hold(call('HGET', hash, other) or '')
        if state == 'L' and #other == 24 and match(other, '^%x+$') then
          over[#over + 1], over[#over + 2], over[#over + 3] = c, tonumber(sub(other, 1, 12), 16), tonumber(sub(other, 13), 16)
        elseif state and state ~= 'L' and stop + 0 > now then
          call('ZADD', ends, stop, other)
        else
          call('HDEL', hash, other)
          call('ZREM', ends, other)
        end
      end
      soonest = tonumber(call('ZRANGE', ends, '0', '0', 'WITHSCORES')[2])
      if soonest then call('HSET', hash, 'n', text_of(soonest)) else call('DEL', hash) end
    end
    soonests[c], lives[c] = soonest, soonest and lasts
  end
end
out[2], out[#out + 1] = found, #over / 3
for i = 1, #over do out[#out + 1] = over[i] end
if found >= 2 then
  out[#out + 1] = number
  return out
end

local list = args[5]
if found == 1 then -- what is held was charged already
  local again = {}
  for c = 1, #flags do
    again[c] = sub(flags, c, c) == '0' and sub(list, 8*c - 7, 8*c) or sub(list, 8*c - 7, 8*c - 6) .. string.rep('\0', 6)
  end
  args[5] = table.concat(again)
end
local states = {unpack(KEYS, 1, first)}
local reply = decide(states, args)
if #reply == 3 and reply[2] == 0 then reply = decide_left(states, args) end -- see takeone.lua
for i = 2, #reply do out[#out + 1] = reply[i] end
if found == 1 or #reply < 3 or reply[2] < 1 then return out end

at = first
local stop, line = now + life, 'L' .. string.rep(' ' .. WHOLE, 6)
for c = 1, #flags do
  local flag = sub(flags, c, c)
  if flag ~= '0' then
    local hash, ends = KEYS[at + 1], KEYS[at + 2]
    at = at + 2
    local units = 0
    for i = 8*c - 5, 8*c do units = units*256 + string.byte(list, i) end
    if units > 0 then
      local hold = format(line, stop, units, now, reply[3*c], reply[3*c + 2], flag == '2' and units or 0)
      -- for as long as the units may count, since nobody may come before
      local least = math.max(stop + 1000*memory, now + reply[3*c + 2]) + 1000*grace
      write_hold(hash, ends, id, hold, stop, soonests[c], lives[c], least, now)
    end
  end
end
return out
