-- What the algorithms that count in periods share: a key that several versions of a rule
-- charge has a value for each grid, by which they cut time. The twin of core/grids.go,
-- which says when grids come and go.
--
-- value    'x':1, and for each grid in the order in which they came: came:7  used:7
--          size:2  value:size, as if it were the only one
-- came     when it was charged first, us; 0 for the first grid of a key
-- used     when its version last took units, us
--
-- Beside the functions in small.lua, an algorithm has the function outlook(s), which brings
-- room, more and reset up to date, and one that returns a table of these, which is called
-- where there are other grids only. A value is that of one grid, for which grid has
-- returned a rule.
--
--   grid(value)           a rule of the grid, whatever its limit; nil for any other value
--   cuts(value, rule)     whether the grid is that of a rule
--   fill(value, rule, at) the value of the grid of a rule that counts what another one does
--   add(s, n, at)         takes n units that were used at a time, up to what a value can have
--   owes(s, at)           whether units that were used at a time count
--   ends(value)           until when a value matters, us, or 0 if it counts nothing
--   last(value)           when a unit was taken, us
--   span(value)           how long a unit counts, at most
--   holds(value)          by which the grid that holds most is chosen
--   give(value, r, now, own)   gives back: the units, and the value. Own says whether the
--                              grid is that of the return
--
-- @needs small.lua
-- @value x 85 1

local MAX_GRIDS, IDLE_GRID = 4, 3600000000

-- @rare
-- the grids of a value, or nil if no script wrote it
local function grids_of(kind, as, value)
  local list, at = {}, 2
  if byte(value, 1) ~= 120 then list[1], at = {came = 0, value = value}, #value + 1 end
  while at <= #value do
    if #value < at + 15 then return nil end
    local size = byte(value, at + 14)*256 + byte(value, at + 15)
    local one = sub(value, at + 16, at + 15 + size)
    if #one < size then return nil end
    list[#list + 1] = {came = u56(value, at), used = u56(value, at + 7), value = one}
    at = at + 16 + size
  end
  for i = 1, #list do
    local g = list[i]
    g.rule = kind.grid(g.value)
    if not g.rule then return nil end
    g.rule.as, g.rule.limit, g.used = as, 0, g.used or kind.last(g.value)
  end
  return list
end

-- @rare
-- the state of a key whose value is not that of the only grid, the one of the rule
local function decode_grids(kind, value, rule, now)
  local as, place, most, ends = rule.as, nil, nil, 0
  local list = grids_of(kind, as, value)
  if not list then return nil end
  for i = 1, #list do
    local one = list[i].value
    if kind.cuts(one, rule) then place = i end
    if not most or kind.holds(one) > kind.holds(most) then most = one end
    ends = math.max(ends, kind.ends(one))
  end
  local mine = false
  if place then
    mine = list[place].value
  elseif ends > now then
    mine = kind.fill(most, rule, math.min(kind.last(most), now))
  end
  local s, wrong = as.decode(mine, rule, now)
  if not s then return nil, wrong end
  s.kind, s.list, s.place, s.ends, s.mine = kind, list, place, ends, mine
  if not place and s.used > 0 then as.outlook(s) end
  return s
end

-- @rare
-- when something comes about that would in so many us: at the latest, when all grids are
-- as good as new
local function sooner(s, us)
  if not s.place and not s.taken and s.ends - s.now < us then return s.ends - s.now end
  return us
end

-- @rare
local function value_of(list)
  local out = {'x'}
  for i = 1, #list do
    local g = list[i]
    out[i + 1] = be56(g.came) .. be56(g.used) .. char((#g.value - #g.value % 256) / 256, #g.value % 256) .. g.value
  end
  return table.concat(out)
end

-- @rare
-- the value of all grids of a key, given that of the rule, and the us that it matters
local function encode_grids(s, value, life)
  local as, kind, list, place, now = s.rule.as, s.kind, s.list, s.place, s.now
  value = s.kept or value
  if s.taken then
    if s.ends <= now then return value, life end
    if not place then
      place = #list + 1
      list[place] = {came = now}
    end
    local mine = list[place]
    mine.used = now
    for i = #list, 1, -1 do
      if list[i] ~= mine and list[i].used + IDLE_GRID + 2*kind.span(list[i].value) <= now then table.remove(list, i) end
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
      if g ~= mine then
        local other = as.decode(g.value, g.rule, now)
        if not s.owed or kind.owes(other, s.owed) then
          kind.add(other, s.taken, s.owed or now)
          g.value = as.encode(other)
        end
      end
    end
    for i = 1, #list do
      if list[i] == mine then place = i end
    end
  end
  list[place].value = value
  if #list == 1 then return value, life end
  for i = 1, #list do life = math.max(life, kind.ends(list[i].value) - now) end
  return value_of(list), life
end

-- @debt
-- Takes units from all grids in which they count.
local function owe_grids(kind, s, n, at)
  local as, list, counts = s.rule.as, s.list, false
  local mine = kind.owes(s, at)
  if list and s.ends > s.now then
    for i = 1, #list do
      if i ~= s.place then counts = counts or kind.owes(as.decode(list[i].value, list[i].rule, s.now), at) end
    end
  end
  if not mine and not counts then return false end
  if mine then kind.add(s, n, at) elseif not s.redated then s.kept = s.mine end
  s.taken, s.owed = n, at
  return true
end

-- @return
-- Gives back to each grid that was charged for the units.
local function give_back_grids(kind, value, r, now)
  local given, ends = 0, 0
  local list = grids_of(kind, r.as, value)
  if not list then return nil, WRONG_VALUE end
  for i = 1, #list do
    local g = list[i]
    local own = kind.cuts(g.value, r)
    if g.came <= r.at and (own or #list > 1) then
      local n, rest = kind.give(g.value, r, now, own)
      if not n then return nil, rest end
      if n > 0 then g.value = rest end
      given = math.max(given, n)
    end
    ends = math.max(ends, kind.ends(g.value))
  end
  if ends == 0 then return given, '' end
  return given, #list == 1 and list[1].value or value_of(list), ends - now
end
