-- What the algorithms that count in periods share: a key that several versions of a rule
-- charge has a value for each grid, by which they cut time. The twin of core/grids.go,
-- which says when grids come and go.
--
-- value    'x':1, and for each grid in the order in which they came: came:7  used:7
--          limit:6  extra:6  size:2  value:size, as if it were the only one
-- came     when it was charged first, us; 0 for the first grid of a key
-- used     when its version last took units, us
-- limit    of its version then; 0 if that is not known, or for the first grid what its window held
-- extra    units above it in the period before, of a fixed window
--
-- Beside the functions in small.lua, an algorithm has one that returns a table of these. It
-- is called only where there are other grids:
--
--   outlook(s)            brings room, more and reset up to date
--   span(rule)            how long a unit counts, at most
--   grid(value, rule)     nil if it is not the value of one grid, or a table: value; rule, one
--                         of its grid; mine, whether it is that of the rule given; last, when
--                         a unit was taken; ends, until when it matters, or 0; span, how
--                         long a unit counts at most; holds, by which that which holds most
--                         is chosen
--   fill(g, rule, at)     the value of the grid of a rule that counts what g does
--   add(s, n, at)         takes n units that were used at a time, up to what a value can have
--   owes(s, at)           whether units that were used at a time count
--   give(g, r, now)       gives back: the units, and the value
--   above(extra, count, limit)  units above the limit of a period; nil if none are carried
--   follows(rule, ends, now)    whether the period after one that ended goes on; with above
--   reopen(g, rule, now)        the value of the period before that of g, which has become empty,
--                               with what it carries; with above
--
-- The rule of a grid has the limit 0, and its state no outlook.
--
-- Almost always, a version has its grid already, and decides by that alone: tables of all
-- grids would cost more than its decision. A function of the algorithm returns a table of
-- what is needed for this. Those above are in it when its function `all` was called, but
-- for outlook, above and span:
--
--   rules                 empty: those of other grids, by what all that cut time alike have
--   mark(value, at)       that, of the grid at a place of a value
--   own(rule)             that of the rule; fills in rule.size, with its times, and rule.span
--   rule(value, at)       the same of the grid at a place, as its rule; or nil if it is not sound
--   resume(s)             optional: what the period before leaves
--   bump(value, at, rule, n, now, stamp)   the grid with n units more, and its times; and the
--                         us that it matters; or nil if that needs a table of it
--
-- @needs small.lua
-- @value x 109 1

local MAX_GRIDS, IDLE_GRID = 4, 3600000000

-- @rare
-- the grids of a value, or nil if no script wrote it
local function grids_of(kind, value, rule)
  local list, at = {}, 2
  if byte(value, 1) ~= 120 then -- of a limit that is not known: a window carries what others take in it
    list[1], at = kind.grid(value, rule), #value + 1
    if not list[1] then return nil end
    list[1].came, list[1].used, list[1].limit, list[1].extra = 0, list[1].last, kind.above and list[1].holds or 0, 0
  end
  while at <= #value do
    if #value < at + 27 then return nil end
    local size = byte(value, at + 26)*256 + byte(value, at + 27)
    local g = kind.grid(sub(value, at + 28, at + 27 + size), rule)
    if not g or #g.value < size then return nil end
    g.head, g.came, g.used = sub(value, at, at + 19), u56(value, at), u56(value, at + 7)
    g.limit, g.extra = u48(value, at + 14), u48(value, at + 20)
    list[#list + 1], at = g, at + 28 + size
  end
  return #list > 0 and list or nil
end

-- @rare
-- until when a grid matters, or 0: a period more if something is above the limit
local function ends_of(kind, g)
  if kind.above and g.ends > 0 and kind.above(g.extra, g.holds, g.limit) > 0 then return g.ends + g.span end
  return g.ends
end

-- @rare
-- how many units of the period of a grid count in the next
local function carried(kind, g, rule, now)
  return kind.follows(rule, g.ends, now) and kind.above(g.extra, g.holds, g.limit) or 0
end

-- @rare
-- the state of a key whose value is not that of the only grid, the one of the rule
local function decode_grids(kind, value, rule, now)
  local list, mine, most, ends = grids_of(kind, value, rule), nil, nil, 0
  if not list then return nil end
  for i = 1, #list do
    local g = list[i]
    if g.mine then mine = g end
    if not most or g.holds > most.holds then most = g end
    local matters = g.ends
    if kind.above and g.extra + g.holds > g.limit then matters = ends_of(kind, g) end
    if matters > ends then ends = matters end
  end
  local own = mine and mine.value
  if not mine and ends > now then own = kind.fill(most, rule, math.min(most.last, now)) end
  local s, wrong = rule.as.decode(own, rule, now)
  if not s then return nil, wrong end
  s.kind, s.list, s.mine, s.ends, s.own = kind, list, mine, ends, own
  if mine and kind.above then
    s.extra, s.was = mine.extra, mine.limit
    if s.used == 0 then s.extra = carried(kind, mine, rule, now) end
    s.room = s.room - s.extra
  end
  kind.outlook(s)
  return s
end

-- @rare
-- tables of the grids of a state that was decoded by its own alone
local function list_grids(s)
  s.list, s.place = grids_of(s.kind.all(), s.list, s.rule), nil
  for i = 1, #s.list do
    if s.list[i].mine then s.mine, s.own = s.list[i], s.list[i].value end
  end
end

-- @rare
-- gives the table of an algorithm its decode, and its encode for states that have a place
local function by_own_grid(as)
  -- The list of a state is the value then, and its place says where its grid is.
  function as.decode(value, rule, now)
    local at, place, other, mark, rules, own = 2, nil, false, as.mark, as.rules, rule.own
    if not own then
      own = as.own(rule)
      rule.own = own
    end
    while at < #value do
      local m = mark(value, at)
      if m == own then
        place, at = at, at + rule.size
      else
        other = rules[m]
        if not other then
          other = as.rule(value, at)
          if not other then break end
          rules[m] = other
        end
        at = at + other.size
      end
    end
    if place and (other or as.resume) and at == #value + 1 then -- only what is carried needs a list of one
      local s = rule.as.decode(value, rule, now, place)
      if s then
        s.kind, s.list, s.place, s.mine = as, value, place, true
        if as.resume then as.resume(s) end
        return s
      end
    end
    return decode_grids(as.all(), value, rule, now)
  end

  function as.encode(s, value, life, stamp)
    if not s.taken or s.owed then return nil end
    local rule, whole, now, at, out = s.rule, s.list, s.now, 2, 'x'
    if #whole == rule.size + 1 and s.extra == 0 then return value, life end
    stamp = stamp or be56(now)
    rule.bytes = rule.bytes or be48(rule.limit) .. '\0\0\0\0\0\0' .. sub(rule.own, 1, 2)
    while at < #whole do
      local other, idle = rule, IDLE_GRID
      if at == s.place then
        local bytes = rule.bytes
        if s.extra and s.extra > 0 then bytes = sub(bytes, 1, 6) .. be48(s.extra) .. sub(bytes, 13) end
        out = out .. sub(whole, at, at + 6) .. stamp .. bytes .. value
      else
        other, idle = as.rules[as.mark(whole, at)], u56(whole, at + 7) - now + IDLE_GRID
        if idle + 2*other.span <= 0 then return nil end -- it goes
        local text, matters = as.bump(whole, at, other, s.taken, now, stamp)
        if not text then return nil end
        if matters > life then life = matters end
        out = out .. text
      end
      idle = idle + 2*other.span
      if idle > life then life = idle end
      at = at + other.size
    end
    return out, life
  end
end

-- @rare
-- when something comes about that would in so many us: at the latest, when all grids are
-- as good as new
local function sooner(s, us)
  if not s.mine and not s.taken and not s.joins and s.ends - s.now < us then return s.ends - s.now end
  return us
end

-- @rare
local function value_of_grids(list)
  local out = {'x'}
  for i = 1, #list do
    local g = list[i]
    out[3*i - 1] = g.head or be56(g.came) .. be56(g.used) .. be48(g.limit)
    out[3*i] = (g.extra > 0 and be48(g.extra) or '\0\0\0\0\0\0') .. char((#g.value - #g.value % 256) / 256, #g.value % 256)
    out[3*i + 1] = g.value
  end
  return table.concat(out)
end

-- @rare
-- the value of all grids of a key, given that of the rule, and the us for which it is kept
local function encode_grids(s, value, life)
  if s.place then list_grids(s) end
  local as, kind, list, mine, now = s.rule.as, s.kind, s.list, s.mine, s.now
  if s.taken or s.joins then
    if not mine then
      if #list == 1 and s.ends <= now then return value, life end -- or the key might have expired
      mine = {came = now}
      list[#list + 1] = mine
    end
    mine.used, mine.limit, mine.extra, mine.head = now, s.taken and s.rule.limit or 0, s.extra or 0, nil
    for i = #list, 1, -1 do
      local g = list[i]
      if g ~= mine and g.used + IDLE_GRID + 2*g.span <= now then table.remove(list, i) end
    end
    while #list > MAX_GRIDS do
      local longest
      for i = 1, #list do
        if list[i] ~= mine and (not longest or list[i].used < list[longest].used) then longest = i end
      end
      table.remove(list, longest)
    end
    for i = 1, #list do
      local g = list[i]
      if g ~= mine and s.taken then
        local other = as.decode(g.value, g.rule, now)
        if not s.owed or kind.owes(other, s.owed) then
          if kind.above and other.used == 0 then g.extra = carried(kind, g, g.rule, now) end
          kind.add(other, s.taken, s.owed or now)
          g.value, g.matters = as.encode(other)
          if kind.above then g.holds = other.used end
        end
      end
    end
  end
  mine.value = s.joins and not s.taken and s.own or s.kept or value
  local above = kind.above and kind.above(0, s.before or s.used, mine.limit) or 0
  if #list == 1 and mine.extra == 0 and above == 0 then return mine.value, life end
  mine.matters, mine.holds = life, s.used
  for i = 1, #list do
    local g = list[i]
    local matters = g.matters or g.ends - now
    local span = g.span or kind.span(s.rule)
    if kind.above and g.holds > 0 and kind.above(g.extra, g.holds, g.limit) > 0 then matters = matters + span end
    if kind.above and g.rule and g.rule.kind > 1 then -- a calendar: a period may have begun with the last unit
      matters = math.max(matters, u56(g.value, 21) + span - now)
    end
    life = math.max(life, matters, g.used + IDLE_GRID + 2*span - now)
  end
  return value_of_grids(list), life
end

-- @rare
-- makes the grid of a version that comes, and is refused, one of its key
local function join_grids(s, k)
  if not s.mine and not s.taken and #s.list < MAX_GRIDS and s.ends > s.now then
    s.joins, redated[k] = true, true
    s.kind.outlook(s)
    more[k], reset[k] = s.more, s.reset
  end
end

-- @debt
-- Takes units from all grids in which they count.
local function owe_grids(kind, s, n, at)
  if s.place then list_grids(s) end
  local list, mine = s.list, kind.owes(s, at)
  local counts = mine
  if list then
    for i = 1, #list do
      local g = list[i]
      if g ~= s.mine then counts = counts or kind.owes(s.rule.as.decode(g.value, g.rule, s.now), at) end
    end
  end
  if not counts then return false end
  if mine then kind.add(s, n, at) elseif not s.redated then s.kept = s.own end
  s.taken, s.owed = n, at
  return true
end

-- @return
-- @rare
-- Gives back to each grid that was charged for the units.
local function give_back_grids(kind, value, r, now)
  local list, given, ends = grids_of(kind, value, r), 0, 0
  if not list then return nil, WRONG_VALUE end
  for i = 1, #list do
    local g = list[i]
    if g.came <= r.at and (g.mine or #list > 1) then -- it was charged
      local n, rest = kind.give(g, r, now)
      if not n then return nil, rest end
      if n > 0 then
        if g.extra > 0 and kind.grid(rest, r).holds == 0 then
          rest, g.extra = kind.reopen(g, r, now), 0
        end
        local after = kind.grid(rest, r)
        g.value, g.ends, g.holds = rest, after.ends, after.holds
      end
      given = math.max(given, n)
    end
    ends = math.max(ends, ends_of(kind, g))
  end
  if ends == 0 then return given, '' end
  local g = list[1]
  local single = #list == 1 and g.extra == 0 and not (kind.above and kind.above(0, g.holds, g.limit) > 0)
  return given, single and g.value or value_of_grids(list), math.max(ends - now, 1)
end
