-- Keys that versions of a rule charge by several algorithms: a tally for each of them. The
-- twin of core/tallies.go, which says when tallies come and go.
--
-- value    'y':1, and for each tally: came:7  used:7  until:7  size:2  head:size  size:3  value:size
-- came     when its version took or was refused first, us; 0 for a value that was there before
-- used     when its version last took or was refused
-- until    until when the value matters
-- head     algorithm:1  span:7  limit:6  window:6  params …   the quota by which the tally is
--          charged for what others admit; the span is how long a unit matters, us. Only the
--          algorithm is known of leases, strikes and values that were there before.
-- value    as if it were the only tally; empty if it is as good as new
--
-- Such a key is decided by scripts with the lines that end in @tallies, and an argument with
-- a head for each key, size:2 head:size; empty for a key that holds no state. A script has
-- the algorithms that are known to be in use. If one of a key is not among them, that is
-- what is wrong with the key: 10 and more.
--
-- @needs overlay.lua
-- @needs heads.lua
-- @needs tellers.lua
-- @value y 25 1

local lacking = {} -- by key, 10 more than an algorithm of units that the script lacks
local asked = {} -- by its index, whether a key was asked for units
tallies.forms = {[7029] = 1, [6775] = 3, [6760] = 4, [7022] = 6} -- by size and first byte, the algorithm of values

-- the algorithm of a letter: of those with one kind of state the first
function tallies.algorithm_by(letter)
  local place = letter ~= '' and string.find('ABMNcduvwhmnsJKL', letter, 1, true)
  return place and byte('\0\0\0\0\0\0\1\2\3\4\4\6\6\7\8\9', place)
end

-- notes that a key has an algorithm of units, and reports whether the script lacks it
function tallies.lacks(key, algorithm)
  if not algorithm or algorithm > 6 or algorithms[algorithm] then return false end
  lacking[key] = 10 + algorithm
  return true
end

-- the algorithm of a value, or nil if it has no size that a script writes
function tallies.algorithm_of(value)
  local grids = byte(value, 1) == 120 -- 'x': several grids, see grids.lua
  local a, size, form = tallies.algorithm_by(sub(value, grids and 30 or 1, grids and 30 or 1)), #value, byte(value, 1)
  local fits = a == 0 and ticks_of(value) or a == 1 and size == 27 or a == 2 and size > 32 and (size - 15) % 6 == 0 or
    a == 3 and size == 26 or a == 4 and size == (form == 104 and 26 or 32) or a == 6 and is_queue(form, size) or
    a == 7 and size > 27 and (size - 10) % 18 == 0 or a == 8 and size > 28 and (size - 29) % 7 == 0 or
    a == 9 and size > 24 and (size - 9) % 16 == 0
  if grids then fits = a and a > 0 and a < 4 end
  return fits and a or nil
end

-- @rare
-- the most that a version leaves in a bucket, in units, and in a queue, in us
local function held_by(head)
  local algorithm = byte(head, 1)
  if algorithm == 6 then return u56(head, 2) end
  return algorithm > 3 and algorithm < 6 and tonumber(string.match(head, '^%d+', 21)) or 0
end

-- @rare
-- whether a value is a string of a log that only the version of a quota has written
local function is_log(value, quota)
  local form, width = sub(quota.text, 21), u48(quota.text, 15) < 4294967296 and 4 or 6
  local others = #value - #form - 7 -- bytes of all ticks but one
  return others >= 0 and others % width == 0 and others < u48(quota.text, 9)*width and sub(value, 1, #form) == form
end

-- The tallies of the value of a key, or nil if no script wrote it. Of each: whole and at, the
-- value and its place there; quota; value and its size; and once they are known, ends, until
-- when it matters, and used.
function tallies.read(key, value)
  local list, at, total = {}, 2, #value
  while at <= total do
    local a, b = byte(value, at + 21, at + 22)
    local size = b and a*256 + b or 0
    local quota = size > 0 and heads.quota_of(sub(value, at + 23, at + 22 + size))
    if not quota or total < at + 25 + size or not algorithms[quota.algorithm] and tallies.lacks(key, quota.algorithm) then return nil end
    local c, d, e, letter = byte(value, at + 23 + size, at + 26 + size)
    local first, length = at + 26 + size, (c*256 + d)*256 + e
    local own = length > 0 and sub(value, first, first + length - 1)
    if own and #own < length then return nil end
    local form = length*256 + (letter or 0)
    if own and tallies.forms[form] ~= quota.algorithm and not (quota.algorithm == 0 and is_log(own, quota)) then
      if tallies.algorithm_of(own) ~= quota.algorithm then return nil end
      if quota.algorithm > 0 and letter ~= 120 then tallies.forms[form] = quota.algorithm end
    end
    list[#list + 1] = {whole = value, at = at, quota = quota, value = own, size = length, ends = nil, used = nil}
    at = first + length
  end
  return #list > 0 and list or nil
end

-- @rare
local function came_of(one) return one.came or u56(one.whole, one.at) end

-- @rare
local function until_of(one) return one.ends or u56(one.whole, one.at + 14) end

-- @rare
-- what a tally that comes begins with
local function filled(t, now)
  local from, longest, quota = t.before, -1, t.quota
  local window = u48(quota.text, 15)
  for i = 1, #t.list do
    local one = t.list[i]
    local used = one.used or u56(one.whole, one.at + 7)
    if one.quota.units and u56(one.quota.text, 2) > longest and used + one.quota.stays > now then
      from, longest = {algorithm = one.quota.algorithm, value = one.value}, u56(one.quota.text, 2)
      window = u48(one.quota.text, 15)
    end
  end
  if not from or not from.value or from.algorithm > 6 then return false end
  local rule, value, spent = heads.rule_of(quota), false, spent_of(from.algorithm, from.value, window)
  for i = 1, #spent, 2 do
    local fresh, life = tell(rule, value, now, spent[i], math.min(spent[i + 1], now), false)
    if fresh then value, t.life = fresh, ceil(life / 1000) end
  end
  return value
end

function tallies.open(key, quota, now)
  local value, mine = server.pcall('GETRANGE', key, '0', '1023'), quota.algorithm -- or a long ring would be copied
  if type(value) == 'table' or value == '' then return end -- no value, or no string: as if there were no tallies
  local form = byte(value, 1)
  if form ~= 121 and form ~= 120 and tallies.algorithm_by(sub(value, 1, 1)) == mine then return end -- 'y' 'x'
  if #value == 1024 then value = server.call('GET', key) end
  local t = {key = key, quota = quota, list = nil, own = nil, value = nil, life = 0, written = nil, before = nil}
  if form == 121 then
    t.list = tallies.read(key, value)
    if not t.list then return end -- something else has written it
  else
    t.list = {}
    local place = form == 120 and 30 or 1
    if tallies.lacks(key, tallies.algorithm_by(sub(value, place, place))) then return end
    local algorithm = tallies.algorithm_of(value)
    if not algorithm or algorithm == mine then return end
    t.before = {algorithm = algorithm, value = value}
  end
  for i = 1, #t.list do
    if t.list[i].quota.algorithm == mine then t.own = t.list[i] end
  end
  if t.own then
    t.value = t.own.value
  else
    t.value = quota.units and filled(t, now)
    t.own = {came = now, quota = quota, comes = true, ends = now + t.life*1000}
  end
  tallied[key] = t
end

-- Reads the values of all keys that have one of another algorithm. The heads are that far
-- before the end of the arguments.
function tallies.open_all(now, behind)
  local list, i = table.remove(argv, #argv - behind), 1
  for k = 1, #keys do
    local a, b = byte(list, i, i + 1)
    local size = a*256 + b
    if size > 0 and not tallied[keys[k]] then tallies.open(keys[k], heads.quota_of(sub(list, i + 2, i + 1 + size)), now) end
    i = i + 2 + size
  end
end

-- Notes that the version was charged, and drops what has gone out of use. Then takes units
-- from the other tallies of a key.
function tallies.join(t, now, n, at, owed)
  local own, list, quota = t.own, t.list, t.quota
  own.used = now
  if quota ~= own.quota and held_by(quota.text) >= held_by(own.quota.text) then -- or the value counts for the larger one
    own.quota, own.size = quota, nil
  end
  if own.comes then
    if t.before and t.before.algorithm > 6 then
      local left = server.call('PTTL', t.key)
      list[1] = {came = 0, used = now, ends = now + left*1000, quota = heads.quota_of(char(t.before.algorithm)), value = t.before.value}
    end
    list[#list + 1], own.comes, t.before = own, nil, nil
  end
  for i = #list, 1, -1 do
    local one = list[i]
    if one ~= own then
      one.used = one.used or u56(one.whole, one.at + 7)
      if one.used + one.quota.stays <= now and (one.quota.units or until_of(one) <= now) then
        table.remove(list, i)
      elseif n > 0 and one.quota.units and quota.units then
        local fresh, life = tell(heads.rule_of(one.quota), one.value, now, n, at, owed)
        if fresh then one.value, one.ends = fresh, now + life end
      end
    end
  end
end

-- writes a key whose tallies have changed
function tallies.write(t, now, grace)
  local own, list, out, n = t.own, t.list, {'y', nil, nil, nil, nil, nil, nil, nil, nil}, 2
  own.value = t.value
  if t.written then own.ends = now + (t.life - grace)*1000 end
  local last, value = own.ends or u56(own.whole, own.at + 14), nil
  if #list == 1 and (own.came or u56(own.whole, own.at)) + own.quota.stays <= now then
    value = own.value
  else
    for i = 1, #list do
      local one = list[i]
      local quota, whole, at, used, ends = one.quota, one.whole, one.at, one.used, one.ends
      local came = at and sub(whole, at, at + 6) or be56(one.came)
      if not used then used = u56(whole, at + 7) end
      if not ends then ends = u56(whole, at + 14) end
      if used + quota.stays > last then last = used + quota.stays end
      if ends > last then last = ends end
      if ends < 0 then ends = 0 elseif ends > 9007199254740991 then ends = 9007199254740991 end
      value = one.value or ''
      out[n], out[n + 1], out[n + 3] = came .. be56(used), be56(ends), value
      out[n + 2] = one.size == #value and sub(whole, at + 21, at + 25 + #quota.text) or sub(be24(#quota.text), 2) .. quota.text .. be24(#value)
      n = n + 4
    end
    value = table.concat(out)
  end
  if value then -- at most for twenty years
    local life = last - now
    if life < 1000 then life = 1000 elseif life > 632448000000000 then life = 632448000000000 end
    server.call('PSETEX', t.key, tostring(ceil(life / 1000) + grace), value)
  else
    server.call('DEL', t.key)
  end
end

-- Writes the keys that were charged, refused or changed.
function tallies.close(now, grace)
  for k = 1, #keys do
    local t = tallied[keys[k]]
    local n = t and taken[k] or 0
    if t and (n > 0 or asked[k]) then
      tallies.join(t, now, n, now, false)
      tallies.write(t, now, grace)
    elseif t and t.written and not t.own.comes then
      tallies.write(t, now, grace)
    end
  end
end

-- @debt
-- Writes a key that was charged a debt.
local function close_debt(k, now, grace, n, at)
  local t = tallied[keys[k]]
  if not t then return end
  if n > 0 then tallies.join(t, now, n, math.max(0, at), true) end
  if n > 0 or t.written and not t.own.comes then tallies.write(t, now, grace) end
end

-- @return
-- Whether the units of a return count in a tally: it was there when they were taken.
local function knew(key, at)
  local t = tallied[key]
  return not t or not t.own.comes and came_of(t.own) <= at
end

-- Gives units back to the other tallies of a key too. It writes nothing.
local function share_return(k, now, given, at)
  local t = tallied[keys[k]]
  if not t or t.own.comes then return end
  for i = 1, given > 0 and #t.list or 0 do
    local one = t.list[i]
    if one ~= t.own and one.value and one.quota.units and came_of(one) <= at then
      local r = heads.rule_of(one.quota)
      if not r.burst and not r.ends then -- a bucket refills, and a calendar is not known
        r.cost, r.at = given, at
        local n, rest = r.as.give_back(one.value, r, now)
        if n and n > 0 then one.value = rest ~= '' and rest end
      end
    end
  end
end

-- Writes a key that units were given back to.
local function close_return(k, now, grace)
  local t = tallied[keys[k]]
  if t and t.written and not t.own.comes then tallies.write(t, now, grace) end
end
