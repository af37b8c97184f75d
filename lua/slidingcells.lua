-- The sliding window in cells: the units of each of the last cells, into which
-- the window is cut. The twin of core/slidingcells.go.
--
-- value    'v':1  last:7  length:7  count:6 …     newest cell first, that of last
-- last     when a unit was taken, us
-- length   of a cell, us
-- params   how many cells the window has
--
-- @needs grids.lua
-- @value v 33 6

-- the oldest cells must leave
local function cells_after(s, n)
  for i = s.keep, 1, -1 do
    n = n - s.counts[i]
    if n <= 0 then
      local us = (s.cell - i + 1 + s.keep)*s.length - s.now
      return s.ends and sooner(s, us) or us
    end
  end
end

local function cells_outlook(s)
  local left = s.rule.limit - s.used
  s.room, s.more, s.reset = left, 0, 0
  if s.used > 0 then
    s.more = cells_after(s, left < 0 and 1 - left or 1)
    s.reset = cells_after(s, s.used)
  end
end

local function take_cells(s, n)
  s.used, s.taken = s.used + n, (s.taken or 0) + n
  s.counts[1] = s.counts[1] + n
  cells_outlook(s)
end

local function encode_cells(s, stamp)
  local out = {'v', stamp or be56(s.now), be56(s.length)}
  for i = 1, s.keep do out[#out + 1] = be48(s.counts[i]) end
  if s.list then
    local life = (s.cell + s.keep)*s.length - s.now
    if s.place then
      local all, kept = s.kind.encode(s, table.concat(out), life, stamp)
      if all then return all, kept end
    end
    return encode_grids(s, table.concat(out), life)
  end
  return table.concat(out), (s.cell + s.keep)*s.length - s.now
end

local cells

-- @rare
-- what grids.lua needs
local function cells_grids()
  local as = {rules = {}, all = nil, mark = nil, own = nil, rule = nil, bump = nil, decode = nil, encode = nil} -- reserves space

  function as.mark(value, at) return sub(value, at + 26, at + 28) .. sub(value, at + 36, at + 42) end

  function as.own(rule)
    local keep, length = rule.cells + 1, ceildiv(rule.window, rule.cells)
    rule.size, rule.span = 43 + 6*keep, keep*length
    return sub(be24(15 + 6*keep), 2) .. 'v' .. be56(length)
  end

  function as.rule(value, at)
    local size = #value > at + 42 and byte(value, at + 26)*256 + byte(value, at + 27) or 0
    local keep, length = (size - 15) / 6, size > 32 and u56(value, at + 36) or 0
    if keep % 1 ~= 0 or #value < at + 27 + size or byte(value, at + 28) ~= 118 or length < 1 or length > 31622400000000 then return nil end
    return {keep = keep, length = length, span = keep*length, size = 28 + size}
  end

  function as.bump(value, at, rule, n, now, stamp)
    local length, keep, last, first, count = rule.length, rule.keep, u56(value, at + 29), at + 43, 0
    local later = floordiv(now, length) - floordiv(last, length)
    for i = first, first + 6*keep - 6, 6 do
      if byte(value, i) > 0 then return nil end -- the sum might be too large
    end
    if later < 0 or n > 1099511627775 then return nil end
    if later == 0 then count = u48(value, first) elseif later > keep then later = keep end
    local head = sub(value, at, at + 28) .. stamp .. sub(value, at + 36, at + 42) .. be48(count + n)
    if later < 2 then return head .. sub(value, first + 6 - 6*later, first + 6*(keep - later) - 1), (floordiv(now, length) + keep)*length - now end
    return head .. rep('\0', 6*later - 6) .. sub(value, first, first + 6*(keep - later) - 1), (floordiv(now, length) + keep)*length - now
  end

  by_own_grid(as)

  function as.all()
    if as.grid then return as end

    as.outlook = cells_outlook

    function as.span(rule) return (rule.cells + 1)*ceildiv(rule.window, rule.cells) end

    function as.grid(value, rule)
      local n = (#value - 15) / 6
      if n < 3 or n % 1 ~= 0 or byte(value, 1) ~= 118 then return nil end
      local last, length, ends = u56(value, 2), u56(value, 9), 0
      if length < 1 or length > 31622400000000 then return nil end
      local newest = floordiv(last, length)
      for i = 0, n - 1 do
        if newest >= i and u48(value, 16 + 6*i) > 0 then
          ends = (newest - i + n)*length
          break
        end
      end
      return {value = value, rule = {as = cells, limit = 0, cells = n - 1, window = length*(n - 1)}, last = last, ends = ends,
        span = n*length, holds = n*length, mine = n == rule.cells + 1 and length == ceildiv(rule.window, rule.cells), came = nil, used = nil}
    end

    -- A cell that spans several of the new ones counts in the last.
    function as.fill(g, rule, at)
      local value, keep, length, counts = g.value, rule.cells + 1, ceildiv(rule.window, rule.cells), {}
      local old = u56(value, 9)
      local newest, cell = floordiv(g.last, old), floordiv(at, length)
      for i = 1, keep do counts[i] = 0 end
      for i = 0, (#value - 15)/6 - 1 do
        local to = floordiv(math.min((newest - i + 1)*old - 1, at), length)
        if newest - i >= 0 and to > cell - keep then
          counts[cell - to + 1] = counts[cell - to + 1] + u48(value, 16 + 6*i)
        end
      end
      for i = 1, keep do counts[i] = be48(math.min(counts[i], 281474976710655)) end
      return 'v' .. be56(at) .. be56(length) .. table.concat(counts)
    end

    function as.add(s, n, at)
      local i = s.cell - floordiv(at, s.length) + 1
      s.counts[i] = s.counts[i] + math.max(0, math.min(n, 281474976710655 - s.used))
    end

    function as.owes(s, at) return floordiv(at, s.length) > s.cell - s.keep end

    -- Gives back to the cell that the units were taken in, while it counts.
    function as.give(g, r, now)
      local value, length, keep = g.value, u56(g.value, 9), g.rule.cells + 1
      local cell, newest = floordiv(r.at, length), floordiv(g.last, length)
      if r.at > now or cell <= floordiv(now, length) - keep or cell > newest or cell <= newest - keep then return 0 end
      local place = 16 + 6*(newest - cell)
      local count = u48(value, place)
      local given = math.min(r.cost, count)
      return given, sub(value, 1, place - 1) .. be48(count - given) .. sub(value, place + 6)
    end

    return as
  end

  return as
end

local function decode_cells(value, rule, now, place)
  local keep, length, before = rule.cells + 1, ceildiv(rule.window, rule.cells), place and place + 27 or 0
  if value and not place and (#value ~= 15 + 6*keep or byte(value, 1) ~= 118 or u56(value, 9) ~= length) then
    rule.grids = rule.grids or cells_grids()
    return rule.grids.decode(value, rule, now)
  end
  local cell = floordiv(now, length)
  local s = {rule = rule, now = now, cell = cell, length = length, keep = keep, used = 0, counts = {},
    room = 0, more = 0, reset = 0}
  for i = 1, keep do s.counts[i] = 0 end -- counts[i]: of cell - i + 1
  if value then
    local newest = u56(value, before + 2)
    newest = (newest - newest % length) / length
    if newest > cell then
      s.redated = true
      for i = 0, keep - 1 do
        local at = newest - i
        if at > cell then at = cell end -- ahead of now is now
        if newest - i >= 0 and at > cell - keep then
          s.counts[cell - at + 1] = s.counts[cell - at + 1] + u48(value, before + 16 + 6*i)
        end
      end
    else
      for i = 0, keep - 1 do
        local j = cell - newest + i + 1
        if j > keep then break end
        s.counts[j] = u48(value, before + 16 + 6*i)
      end
    end
    for i = 1, keep do s.used = s.used + s.counts[i] end
    if s.used >= 281474976710656 and rule.limit > 0 then return nil end -- no limit is as large
  end
  if rule.limit > 0 then cells_outlook(s) end
  return s
end

cells = small(decode_cells, take_cells, cells_after, encode_cells)
algorithms[2] = cells

function cells.prepare(rule, params) rule.cells = tonumber(params) end

function cells.refuse(rule, k)
  local s = states[k]
  if s.list then join_grids(s, k) end
end

-- @debt
function cells.owe(s, n, at)
  s.rule.grids = s.rule.grids or cells_grids()
  return owe_grids(s.rule.grids.all(), s, n, at)
end

-- Owe of the only grid: see add_units in tellers.lua.
function cells.add_units(rule, value, now, n, stamp)
  local keep, length = rule.cells + 1, ceildiv(rule.window, rule.cells)
  if #value ~= 15 + 6*keep or byte(value, 1) ~= 118 or u56(value, 9) ~= length or n > 1099511627775 then return nil end
  for i = 16, #value, 6 do
    if byte(value, i) > 0 then return nil end -- the sum might be too large
  end
  local cell, counts = floordiv(now, length), nil
  local later = cell - floordiv(u56(value, 2), length)
  if later < 0 then return nil elseif later > keep then later = keep end
  if later == 0 then
    counts = be48(u48(value, 16) + n) .. sub(value, 22)
  else
    counts = be48(n) .. rep('\0', 6*later - 6) .. sub(value, 16, 15 + 6*(keep - later))
  end
  return 'v' .. stamp .. sub(value, 9, 15) .. counts, (cell + keep)*length - now
end

-- @return
local NO_UNITS = '\0\0\0\0\0\0'

function cells.give_back(value, r, now)
  local keep, length = r.cells + 1, ceildiv(r.window, r.cells)
  if #value ~= 15 + 6*keep or byte(value, 1) ~= 118 or u56(value, 9) ~= length then
    return give_back_grids(cells_grids().all(), value, r, now) -- @batch
  end
  local at = r.at
  local cell = floordiv(at, length)
  local behind = floordiv(u56(value, 2), length) - cell
  if floordiv(now, length) - cell >= keep and floordiv(now, length) - cell >= behind then return 0, '' end -- @settle
  if at > now or behind < 0 or behind >= keep or floordiv(now, length) - cell >= keep then return 0 end
  local place, given, used = 16 + 6*behind, r.cost, 0
  local count = u48(value, place)
  if given > count then given = count end
  local rest = sub(value, 1, place - 1) .. (given < count and be48(count - given) or NO_UNITS) .. sub(value, place + 6)
  if given == count and sub(rest, 16) == rep('\0', 6*keep) then return given, '' end
  local newest, oldest, passed = nil, nil, floordiv(now, length) - cell - behind
  if passed >= 0 then return given, rest, keep*length, true, nil, nil, true end -- @settle
  if passed < 0 or not r.alone then return given, rest, keep*length, true end
  for i = 16, 10 + 6*(keep - passed), 6 do
    if sub(rest, i, i + 5) ~= NO_UNITS then newest, oldest, used = newest or i, i, used + u48(rest, i) end
  end
  if used < 1 or used > r.limit then return given, rest, keep*length, true end
  local ends = (cell + behind + keep)*length - now -- of the newest cell
  return given, rest, keep*length, true, nil, nil, r.limit - used, ends - (oldest - 16)/6*length, ends - (newest - 16)/6*length
end
