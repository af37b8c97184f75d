-- Gives units of admitted charges back, in order: several returns may be to one key.
-- Everything is read and checked before the first write; if one key is wrong, nothing is
-- written. A key that is full again is deleted, and any other keeps at least the TTL that it
-- had. Then the script looks at all keys.
--
-- KEYS      every key once, grouped by rule in the order of the rules; behind those of a
--           bucket, the keys of what was given back before; in a cluster all in one slot
-- ARGV[1]   now in us since the epoch; '' for the time of Redis, as always but in tests
-- ARGV[2]   ms that each key outlives its last unit
-- ARGV[3…]  for each rule two: its parameters (as in take.lua, without ids); and
--           algorithm:1 (its number in package core), number of its keys:2, limit:6,
--           window:6 in us, and its returns: for each its index in KEYS:2, the units to
--           give back:6, and of the admission its time:7 in us, what remained:6, the us
--           until the quota was full:7, and its id:8. Numbers are big-endian: Redis takes
--           longer to pass each argument than the script to read them
-- ARGV[#]   for lines with @tallies only, the heads of the keys: see tallies.lua. Each rule
--           has one return then
-- reply     an integer for each return: units that were given back, or what is
--           wrong with its key: -1 a value of another type, -2 a value that no
--           script wrote, -3 that the time of Redis is in none of the calendar periods sent.
--           If nothing is wrong, then for each key three: remaining; us until
--           remaining grows; us until the quota is full
--
-- Functions of an algorithm, beside those that state.lua names:
--
--   give_back(value, rule, now, returned)   takes the value of a key, the return, which is
--       in rule.cost and rule.at, and the rest of it in rule.list from rule.i on; and what
--       was given back before. It returns the units given back, the new value ('' for
--       none), the us that it matters, whether no TTL that it had is longer, what to
--       remember, and for how many us; or nil and what is wrong. Where look would read anew
--       what it knows, it also returns the room, more and reset of look, if rule.alone: there
--       is no other return to the rule
--   look(rule, now, k, value)    fills in the row of a key; or decode, see small.lua
--   date(rule, k, now, grace)    writes a key that look has redated; or encode
--
-- An algorithm that sets rule.upto has its values read up to that byte only, where its
-- partial(value) says that this is enough. Its give_back then returns the value that look
-- needs, and instead of the us a function that writes the key.
--
-- Of these functions, lines that end in @batch and @many are not in returnone.lua: see
-- script.go. Lines that end in @several are for keys that have several rules, or tallies.

local now, grace, format = argv[1], argv[2] + 0, string.format -- in half the time of tostring
if now ~= '' then
  now = now + 0
else
  local t = call('TIME')
  now = t[1]*1000000 + t[2]
end
tallies.open_all(now, 0) -- @tallies
local K = #argv/2 - 1

local stored, written, rules, last = {nil, nil, nil, nil}, {}, {nil, nil, nil, nil}, 0
local names = {[stored] = {}, [written] = {}} -- @several
local one = {__index = function(t, k) return names[t][keys[k]] end, __newindex = function(t, k, v) names[t][keys[k]] = v end} -- @several
setmetatable(stored, one) -- @several
setmetatable(written, one) -- @several
for r = 1, K do
  local params, list = argv[2*r + 1], argv[2*r + 2]
  local a, b, c, d, e, f, g, h, i, u, v, w, x, y, z = byte(list, 1, 15)
  local limit, window = ((((d*256 + e)*256 + f)*256 + g)*256 + h)*256 + i, ((((u*256 + v)*256 + w)*256 + x)*256 + y)*256 + z
  local rule = {
    as = algorithms[a], limit = limit, window = window, short = window < 4294967296, first = last + 1, k = 1, last = last,
    count = b*256 + c, list = list, alone = #list < 52, i = 1, cost = 0, at = 0, -- room for three more, as in take.lua
  }
  if rule.as.prepare then rule.as.prepare(rule, params) end -- @each
  last = last + rule.count*(rule.as.returned and 2 or 1)
  rule.last = last
  rule.upto = nil -- @several
  if rule.count == 1 or rule.upto then
    for k = rule.first, last do
      local value
      if rule.upto then value = redis.pcall('GETRANGE', keys[k], '0', rule.upto) end
      if not value or value == '' or #value > 500 and not rule.as.partial(value) then value = redis.pcall('GET', keys[k]) end
      if type(value) == 'table' then problem[k] = WRONG_TYPE else stored[k] = value end
    end
  else
    local got = values_of(rule)
    for k = rule.first, last do stored[k] = got[k - rule.first + 1] end
  end
  rules[r] = rule
end

local out, wrong = {nil, nil, nil, nil}, false
for r = 1, K do
  local rule = rules[r]
  local list, count = rule.list, rule.as.returned and rule.count
  for i = 16, #list, 36 do
    local a, b, c, d, e, f, g, h, t, u, v, w, x, y, z = byte(list, i, i + 14)
    local k = a*256 + b
    rule.i, rule.k, rule.cost = i, k, ((((c*256 + d)*256 + e)*256 + f)*256 + g)*256 + h
    rule.at = (((((t*256 + u)*256 + v)*256 + w)*256 + x)*256 + y)*256 + z
    local value, what, given = stored[k], problem[k] or count and problem[k + count], 0
    local rest, life, long, memory, other, free, wait, full
    if not knew(keys[k], rule.at) then value = nil end -- @tallies
    if value and not what then
      given, rest, life, long, memory, other, free, wait, full = rule.as.give_back(value, rule, now, count and stored[k + count])
      if not given then what = rest end
    end
    if what then
      given, wrong = -what, true
    elseif given > 0 then
      local left, write = 0, type(life) == 'function' and life
      if write then life, long = 0, true end
      if rest == '' then rest, life, long = false, 0, true end
      if not long then left = call('PTTL', keys[k]) end
      life = ceil(life / 1000) + grace
      stored[k], written[k] = rest, write or left > life and left or life
      room[k], more[k], reset[k] = free, wait, full
      if memory then
        stored[k + count] = memory
        written[k + count] = ceil(other / 1000) + grace
      end
    end
    out[#out + 1] = given
  end
end
if wrong then return out end
for r = 1, K do share_return(rules[r].first, now, out[r], rules[r].at) end -- @tallies
for k = 1, last do room[k] = nil end -- @several

for k = 1, last do
  local ttl = written[k]
  if type(ttl) == 'function' then
    ttl()
  elseif ttl then
    if stored[k] then call('PSETEX', keys[k], format('%.0f', ttl), stored[k]) else call('DEL', keys[k]) end
  end
end

for r = 1, K do
  local rule = rules[r]
  for k = rule.first, rule.first + rule.count - 1 do
    local value, s = stored[k], nil
    if room[k] then -- give_back knows
    elseif rule.as.decode then
      s = rule.as.decode(value, rule, now)
      if s then
        room[k], more[k], reset[k], redated[k] = s.room, s.more, s.reset, s.redated
      else
        problem[k] = WRONG_VALUE
      end
    else
      rule.as.look(rule, now, k, value) -- @each
    end
    if problem[k] then room[k], more[k], reset[k] = 0, -2, 0 end -- which makes no sense
    out[#out + 1], out[#out + 2], out[#out + 3] = room[k] > 0 and room[k] or 0, more[k], reset[k]
    if redated[k] then -- the clock stepped back, or the window is another
      local left = call('PTTL', keys[k])
      if s then
        local fresh, life = rule.as.encode(s, be56(now))
        call('SET', keys[k], fresh, 'PX', tostring(ceil(life / 1000) + grace))
      else
        rule.as.date(rule, k, now, grace) -- @each
      end
      if left > call('PTTL', keys[k]) then call('PEXPIRE', keys[k], left) end
      stored[k] = call('GET', keys[k]) -- @several
    end
  end
end
for r = 1, K do close_return(rules[r].first, now, grace) end -- @tallies
return out
