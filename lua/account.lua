-- Says what a key owes and holds: see core.Account. It changes nothing.
--
-- KEYS      the key of the state, and that of its holds, as in hold.lua
-- ARGV[1]   now in us since the epoch; '' for the time of Redis, as always but in tests
-- ARGV[2…5] algorithm, limit, window in us and parameters, as in debts.lua; '' for an algorithm
--           without debts
-- ARGV[6]   where to read the holds on: 0, or the first of the last reply
-- reply     where to read on, or 0; the units above the limit; how many of some holds live; their
--           units; the us until the next of them ends, or 0; how many have ended, and are not
--           given back. take.lua says what is wrong with a key: here, it owes nothing

local now = tonumber(argv[1])
if not now then
  local t = call('TIME')
  now = t[1]*1000000 + t[2]
end

local rule, owed = {as = algorithms[tonumber(argv[2])], limit = argv[3] + 0, window = argv[4] + 0}, 0
local value = rule.as and redis.pcall('GET', keys[1])
if type(value) == 'string' then
  rule.short = rule.window < 4294967296
  rule.as.prepare(rule, argv[5])
  local s = rule.as.decode(value, rule, now)
  owed = s and math.max(0, -s.room) or 0
end

local holds, units, next, ended, some = 0, 0, 0, 0, {0, {}}
local function count(stop, n)
  local left = stop and stop - now
  if left and left > 0 then
    holds, units = holds + 1, units + n
    if left < next or next == 0 then next = left end
  elseif left then
    ended = ended + 1
  end
end

local few = redis.pcall('GET', keys[2])
if type(few) == 'string' then
  for i = 18, #few - 93, 94 do
    if string.find(few, '^[LK]', i + 24) then count(tonumber(sub(few, i + 25, i + 40)), u48(few, i + 57)) end
  end
elseif few then
  some = call('HSCAN', keys[2], argv[6], 'COUNT', '1000')
  for i = 2, #some[2], 2 do count(string.match(some[2][i], '^L (%d+) (%d+)')) end
end
return {tonumber(some[1]), owed, holds, units, next, ended}
