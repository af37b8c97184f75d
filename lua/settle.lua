-- Settles or ends holds by the script that gives units back and the one that takes debts. A
-- hold is read and written with the units, so what is settled does not change again.
--
-- KEYS      those of the first script; those of the second; then of each settlement the key of the
--           holds, and then of each the sorted set, as in hold.lua
-- ARGV[1]   now in us since the epoch; '' for the time of Redis, as always but in tests
-- ARGV[2]   ms that each key outlives its last unit
-- ARGV[3]   the ms for which an end is remembered
-- ARGV[4…6] how many keys the first script has; how many arguments behind its second; how many
--           the second script has, without its number, or 0
-- ARGV[…]   the arguments of the first script, with a rule for each settlement, behind which is a
--           digit, 1 to end the hold, if it has not been extended, 2 to forget it, or 0; and its id;
--           the units of a return are what it really cost; and the arguments of the second, with
--           a debt for each
-- reply     of each settlement four: 0 there is no such hold, 1 it lived, 2 it had ended, 3 it
--           was settled or extended, and nothing has changed, 4 the second script is needed, which
--           has no arguments, and nothing has changed for any settlement; the units that came back; those
--           that were taken; those that were not, since there was no room. Below 0, the first
--           of a settlement says what is wrong with its key, as in return.lua, or -4 that no script
--           wrote its hold, and nothing has changed

local function settle_one(KEYS, ARGV)
FEW
end
local few = settle_one(KEYS, ARGV)
if few then return few end

local function give_back(KEYS, ARGV)
INNER
end

local function owe(KEYS, ARGV)
OTHER
end

local char = string.char
BE48
HELD
local now, grace, memory = time_of(ARGV[1]), ARGV[2] + 0, ARGV[3] + 0

-- a number as seven big-endian bytes
local function seven(x)
  local low = x % 256
  return be48((x - low) / 256) .. char(low)
end

local keys, returns, owing = ARGV[4] + 0, ARGV[5] + 0, ARGV[6] + 0
local back, more, K = {text_of(now), grace, unpack(ARGV, 7, 6 + returns)}, {unpack(ARGV, 7 + returns, 6 + returns + owing)}, (returns - returns % 2) / 2
local first, given, taken = #KEYS - 2*K, false, false
local out, after = {}, {}
more[1], more[#more + 1] = back[1], 0
local lacks, broken = false, false
for s = 1, K do
  local list = back[2*s + 2] -- see return.lua
  local how, id, a, b, c, d, e, f = sub(list, 52, 52), sub(list, 53), byte(list, 18, 23)
  local cost = ((((a*256 + b)*256 + c)*256 + d)*256 + e)*256 + f
  local ends = how == '1'
  local soonest, lives, hold, state, stop, units, rest = read_hold(KEYS[first + s], KEYS[first + K + s], id, now)
  local found, less, debt = 0, 0, 0
  if soonest == false then found, broken = -4, true end
  if state and (state == 'L' or stop + 0 > now) then found = state == 'L' and 1 or state == 'E' and 2 or 3 end
  if ends and (found == 2 or found == 1 and stop + 0 > now) then found = 3 end
  local known = sub(list, 24, 30) ~= '\0\0\0\0\0\0\0'
  if (found == 1 or found == 2) and known and cost == 0 and not ends then -- of one that was forgotten, and began anew
    if seven(match(hold, '^ (%d+)', rest)) ~= sub(list, 24, 30) then found = 0 end
  end
  if found == 1 or found == 2 then
    if ends then cost = match(hold, '(%d+)$') + 0 end
    if units - cost > 0 then less = units - cost else debt = cost - units end
    after[s] = {how == '2' and 0 or cost, ends and sub(hold, rest), lives, stop + 0, soonest, id}
  end
  if less > 0 then -- what the caller knows may be of one before it of that id
    local took, left, reset = match(hold, '^ (%d+) (%d+) (%d+)', rest)
    list = sub(list, 1, 23) .. seven(took) .. be48(left) .. seven(reset) .. sub(list, 44, 51)
  end
  back[2*s + 2], more[9*s - 1] = sub(list, 1, 17) .. be48(less) .. sub(list, 24, 51), debt -- see debts.lua
  given = given or less > 0
  taken = taken or debt > 0
  if debt > 0 and owing == 0 then found, lacks = 4, true end
  out[4*s - 3], out[4*s - 2], out[4*s - 1], out[4*s] = found, 0, 0, 0
end

if lacks or broken then return out end

if given then
  local reply = give_back({unpack(KEYS, 1, keys)}, back)
  for s = 1, K do
    out[4*s - 2] = reply[s]
    if reply[s] < 0 then
      out[4*s - 3] = reply[s]
      return out
    end
  end
end
if taken then
  local reply = owe({unpack(KEYS, keys + 1, first)}, more)
  for s = 1, K do
    if reply[4*s - 2] < 0 then
      out[4*s - 3] = reply[4*s - 2]
      return out
    end
    out[4*s - 1], out[4*s] = more[9*s - 1], reply[4*s + 1] -- the script leaves there what it has taken
  end
end
local stop = now + 1000*memory
for s, hold in pairs(after) do
  local hash, ends, id = KEYS[first + s], KEYS[first + K + s], hold[6]
  local line = (hold[2] and 'E ' or 'S ') .. text_of(stop) .. ' ' .. text_of(hold[1]) .. (hold[2] or '')
  if hold[1] == 0 and not hold[2] then -- it is forgotten
    redis.pcall('ZREM', ends, id) -- see write_hold
    if call('EXISTS', ends) == 1 then
      call('HDEL', hash, id)
    else -- the next one of it has no time to live before t is set anew
      call('HDEL', hash, id, 'n', 't')
    end
  else -- one that would have lived for longer than it is remembered now ends earlier
    write_hold(hash, ends, id, line, hold[4] > stop and stop or nil, hold[5], hold[3], stop + 1000*grace, now)
  end
end
return out
