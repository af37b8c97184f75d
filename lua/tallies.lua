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
-- @needs tellers.lua
-- @value y 25 1

local IDLE_TALLY = 3600000000
algorithms[4] = algorithms[4] or algorithms[5]
local lacking = {} -- by key, 10 more than an algorithm of units that the script lacks
local asked = {} -- by its index, whether a key was asked for units
local forms = {} -- by size and first byte, the algorithm of values of this call
local quotas = {} -- by heads that a script has written, their rules, or true; keys that are alike share one

-- the algorithm of a letter: of those with one kind of state the first
local function algorithm_by(letter)
  local place = letter ~= '' and string.find('ABMNcduvwhmnsJKL', letter, 1, true)
  return place and byte('\0\0\0\0\0\0\1\2\3\4\4\6\6\7\8\9', place)
end

-- notes that a key has an algorithm of units, and reports whether the script lacks it
local function lacks(key, algorithm)
  if not algorithm or algorithm > 6 or algorithms[algorithm] then return false end
  lacking[key] = 10 + algorithm
  return true
end

-- the algorithm of a value, or nil if it has no size that a script writes
local function algorithm_of(value)
  local grids = byte(value, 1) == 120 -- 'x': several grids, see grids.lua
  local a, size, form = algorithm_by(sub(value, grids and 30 or 1, grids and 30 or 1)), #value, byte(value, 1)
  local fits = a == 0 and ticks_of(value) or a == 1 and size == 27 or a == 2 and size > 32 and (size - 15) % 6 == 0 or
    a == 3 and size == 26 or a == 4 and size == (form == 104 and 26 or 32) or a == 6 and is_queue(form, size) or
    a == 7 and size > 27 and (size - 10) % 18 == 0 or a == 8 and size > 28 and (size - 29) % 7 == 0 or
    a == 9 and size > 24 and (size - 9) % 16 == 0
  if grids then fits = a and a > 0 and a < 4 end
  return fits and a or nil
end

local function algorithm_in(head) return byte(head, 1) == 5 and 4 or byte(head, 1) end

-- whether an algorithm counts units, as others do
local function counts_units(algorithm) return algorithm < 7 end

-- the rule of a head
local function rule_of(head)
  local rule = quotas[head]
  if rule and rule ~= true then return rule end
  rule = {as = algorithms[algorithm_in(head)], limit = u48(head, 9), window = u48(head, 15)}
  rule.short, rule.capacity = rule.window < 4294967296, rule.limit
  local prepare = rule.as['prepare']
  if prepare then prepare(rule, sub(head, 21)) end
  rule.as = algorithms[algorithm_in(head)] -- and not that of large logs
  if rule.periods then rule.periods, rule.ends = nil, 0 end -- a calendar is not known here
  quotas[head] = rule
  return rule
end

-- the most that a version leaves in a bucket, in units, and in a queue, in us
local function held_by(head)
  local algorithm = byte(head, 1)
  if algorithm == 6 then return u56(head, 2) end
  return algorithm > 3 and algorithm < 6 and tonumber(string.match(head, '^%d+', 21)) or 0
end

local function goes(t) return t.used + IDLE_TALLY + 2*(#t.head > 1 and u56(t.head, 2) or 0) end

-- @rare
-- whether a head is that of a quota, or says the algorithm of what counts no units
local function is_head(head)
  local a, params = byte(head, 1), sub(head, 21)
  if #head < 20 or a > 9 then return #head == 1 and a > 6 and a < 10 end
  local limit, window = u48(head, 9), u48(head, 15)
  if limit < 1 or window < 1 or window > 31622400000000 or #params > 40 then return false end
  if a == 0 then return limit <= 100000 end
  if a == 1 then return #params == 7 and byte(params, 1) == 117 end
  if a == 2 then return string.match(params, '^%d%d?$') and params + 0 > 1 and params + 0 < 61 end
  if a == 6 then return string.match(params, '^%d+,%d+$') end
  return a ~= 4 and a ~= 5 or string.match(params, '^%d+,?%d*$')
end

-- the tallies of the value of a key, or nil if no script wrote it
local function tallies_of(key, value)
  local list, at = {}, 2
  while at <= #value do
    if #value < at + 26 then return nil end
    local begins, size = at, byte(value, at + 21)*256 + byte(value, at + 22)
    local t = {came = u56(value, at), used = u56(value, at + 7), ends = u56(value, at + 14), head = sub(value, at + 23, at + 22 + size),
      times = sub(value, at, at + 13), value = nil, sizes = nil, size = nil}
    at = at + 23 + size
    if size < 1 or #value < at + 2 or not quotas[t.head] and not is_head(t.head) then return nil end
    quotas[t.head] = quotas[t.head] or true
    local algorithm = algorithm_in(t.head)
    if not algorithms[algorithm] and lacks(key, algorithm) then return nil end
    size = u24(value, at)
    t.value, at = sub(value, at + 3, at + 2 + size), at + 3 + size
    if #t.value < size then return nil end
    t.sizes, t.size = sub(value, begins + 21, at - 1 - size), size
    local form = size*256 + (byte(t.value, 1) or 0)
    if size == 0 then
      t.value = false
    elseif forms[form] ~= algorithm then
      if algorithm_of(t.value) ~= algorithm then return nil end
      if algorithm > 0 and form % 256 ~= 120 then forms[form] = algorithm end
    end
    list[#list + 1] = t
  end
  return #list > 0 and list or nil
end

-- @rare
-- what a tally that comes begins with
local function filled(t, head, now)
  local from, longest, window = t.before, -1, u48(head, 15)
  for i = 1, #t.list do
    local one = t.list[i]
    if counts_units(algorithm_in(one.head)) and u56(one.head, 2) > longest then
      from, longest = {algorithm = algorithm_in(one.head), value = one.ends > now and one.value}, u56(one.head, 2)
      window = u48(one.head, 15)
    end
  end
  if not from or not from.value or not counts_units(from.algorithm) then return false end
  local rule, value, spent = rule_of(head), false, spent_of(from.algorithm, from.value, window)
  for i = 1, #spent, 2 do
    local fresh, life = tell(rule, value, now, spent[i], math.min(spent[i + 1], now), false)
    if fresh then value, t.life = fresh, ceil(life / 1000) end
  end
  return value
end

local function open_tally(key, head, now)
  local value = server.pcall('GETRANGE', key, '0', '1023') -- or a long ring would be copied
  if type(value) == 'table' or value == '' then return end -- no value, or no string: as if there were no tallies
  local mine, first = algorithm_in(head), sub(value, 1, 1)
  if first ~= 'y' and first ~= 'x' and algorithm_by(first) == mine then return end
  if #value == 1024 then value = server.call('GET', key) end
  local t = {key = key, head = head, list = nil, life = 0, value = nil, own = nil, before = nil, written = nil}
  if first == 'y' then
    t.list = tallies_of(key, value)
  else
    t.list = {}
    local place = first == 'x' and 30 or 1
    if lacks(key, algorithm_by(sub(value, place, place))) then return end
    local algorithm = algorithm_of(value)
    if algorithm == mine then return end
    t.before = algorithm and {algorithm = algorithm, value = value}
  end
  if not t.list or first ~= 'y' and not t.before then return end -- something else has written it
  for i = 1, #t.list do
    if algorithm_in(t.list[i].head) == mine then t.own = t.list[i] end
  end
  if t.own then
    t.value = t.own.value
  else
    t.value = counts_units(mine) and filled(t, head, now)
    t.own = {came = now, used = now, head = head, comes = true}
  end
  t.own.ends, tallied[key] = t.own.ends or now + t.life*1000, t
end

-- Reads the values of all keys that have one of another algorithm. The heads are that far
-- before the end of the arguments.
local function open_tallies(now, behind)
  local heads, i = table.remove(argv, #argv - behind), 1
  for k = 1, #keys do
    local size = byte(heads, i)*256 + byte(heads, i + 1)
    if size > 0 and not tallied[keys[k]] then open_tally(keys[k], sub(heads, i + 2, i + 1 + size), now) end
    i = i + 2 + size
  end
end

-- notes that the version was charged, and drops what has gone out of use
local function join_tally(t, now)
  local own, list = t.own, t.list
  own.used, own.times = now, own.times and sub(own.times, 1, 7) .. be56(now)
  if t.head ~= own.head and held_by(t.head) >= held_by(own.head) then -- or the value counts for the larger one
    own.head, own.size = t.head, nil
  end
  if own.comes then
    if t.before and not counts_units(t.before.algorithm) then
      local left = server.call('PTTL', t.key)
      list[1] = {came = 0, used = now, ends = now + left*1000, head = char(t.before.algorithm), value = t.before.value}
    end
    list[#list + 1], own.comes, t.before = own, nil, nil
  end
  for i = #list, 1, -1 do
    local one = list[i]
    local last = goes(one)
    if not counts_units(algorithm_in(one.head)) and one.ends > last then last = one.ends end
    if one ~= own and last <= now then table.remove(list, i) end
  end
end

-- takes units from the other tallies of a key
local function tell_others(t, now, n, at, owed)
  if not counts_units(algorithm_in(t.head)) then return end
  for i = 1, #t.list do
    local one = t.list[i]
    if one ~= t.own and counts_units(algorithm_in(one.head)) then
      local fresh, life = tell(rule_of(one.head), one.value, now, n, at, owed)
      if fresh then one.value, one.ends = fresh, now + life end
    end
  end
end

-- writes the value of a key that matters until a time, at most for twenty years
local function write_key(t, value, us, grace)
  server.call('SET', t.key, value, 'PX', tostring(ceil(math.max(1000, math.min(us, 632448000000000)) / 1000) + grace))
end

local function write_tallies(t, now, grace)
  local own, list = t.own, t.list
  own.value = t.value
  if t.written then own.ends = now + (t.life - grace)*1000 end
  local last = own.ends
  if #list == 1 and own.came + IDLE_TALLY + 2*u56(own.head, 2) <= now then
    if not own.value then return server.call('DEL', t.key) end
    return write_key(t, own.value, last - now, grace)
  end
  local out = {'y'}
  for i = 1, #list do
    local one = list[i]
    local value = one.value or ''
    last = math.max(last, one.ends, goes(one))
    out[3*i - 1] = (one.times or be56(one.came) .. be56(one.used)) .. be56(math.max(0, math.min(one.ends, 9007199254740991)))
    out[3*i] = one.size == #value and one.sizes or sub(be24(#one.head), 2) .. one.head .. be24(#value)
    out[3*i + 1] = value
  end
  write_key(t, table.concat(out), last - now, grace)
end

-- Writes the keys that were charged, refused or changed.
local function close_tallies(now, grace)
  for k = 1, #keys do
    local t = tallied[keys[k]]
    local n = t and taken[k] or 0
    if t and (n > 0 or asked[k]) then
      join_tally(t, now)
      if n > 0 then tell_others(t, now, n, now, false) end
      write_tallies(t, now, grace)
    elseif t and t.written and not t.own.comes then
      write_tallies(t, now, grace)
    end
  end
end

-- @debt
-- Writes a key that was charged a debt.
local function close_debt(k, now, grace, n, at)
  local t = tallied[keys[k]]
  if not t then return end
  if n > 0 then
    join_tally(t, now)
    tell_others(t, now, n, math.max(0, at), true)
  end
  if n > 0 or t.written and not t.own.comes then write_tallies(t, now, grace) end
end

-- @return
-- Whether the units of a return count in a tally: it was there when they were taken.
local function knew(key, at)
  local t = tallied[key]
  return not t or not t.own.comes and t.own.came <= at
end

-- Gives units back to the other tallies of a key too.
local function close_return(k, now, grace, given, at)
  local t = tallied[keys[k]]
  if not t or t.own.comes then return end
  for i = 1, given > 0 and #t.list or 0 do
    local one = t.list[i]
    if one ~= t.own and one.value and counts_units(algorithm_in(one.head)) and one.came <= at then
      local r = rule_of(one.head)
      if not r.burst and not r.ends then -- a bucket refills, and a calendar is not known
        r.cost, r.at = given, at
        local n, rest = r.as.give_back(one.value, r, now)
        if n and n > 0 then one.value = rest ~= '' and rest end
      end
    end
  end
  if t.written then write_tallies(t, now, grace) end
end
