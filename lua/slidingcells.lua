-- The sliding window in cells: the units of each of the last cells, into which
-- the window is cut. The twin of core/slidingcells.go.
--
-- value    'f':1  newest:7  length:7  count:6 …     newest cell first
-- newest   the number of the last cell that was taken from, since the epoch
-- length   of a cell, us
-- params   how many cells the window has
--
-- @needs small.lua
-- @value f 21 6

-- the oldest cells must leave
local function cells_after(s, n)
  for i = s.keep, 1, -1 do
    n = n - s.counts[i]
    if n <= 0 then return (s.cell - i + 1 + s.keep)*s.length - s.now end
  end
end

local function cells_outlook(s)
  local room = s.rule.limit - s.used
  s.room, s.more, s.reset = room, 0, 0
  if s.used > 0 then
    s.more = cells_after(s, room < 0 and 1 - room or 1)
    s.reset = cells_after(s, s.used)
  end
end

local function take_cells(s, n)
  s.used, s.taken = s.used + n, true
  s.counts[1] = s.counts[1] + n
  cells_outlook(s)
end

local function encode_cells(s)
  local out = {'f', be56(s.cell), be56(s.length)}
  for i = 1, s.keep do out[#out + 1] = be48(s.counts[i]) end
  return table.concat(out), (s.cell + s.keep)*s.length - s.now
end

local function decode_cells(value, rule, now)
  local keep, length = rule.cells + 1, ceildiv(rule.window, rule.cells)
  local cell = floordiv(now, length)
  local s = {rule = rule, now = now, cell = cell, length = length, keep = keep, used = 0, counts = {}}
  for i = 1, keep do s.counts[i] = 0 end -- counts[i]: of cell - i + 1
  if value then
    local n = (#value - 15) / 6
    if n < 1 or n % 1 ~= 0 or byte(value, 1) ~= 102 then return nil end
    local newest, old = u56(value, 2), u56(value, 9)
    if old < 1 then return nil end
    local relaid = old ~= length or n ~= keep
    if relaid or newest > cell then
      s.redated = true
      for i = 0, n - 1 do
        local at = newest - i
        if relaid then at = floordiv((at + 1)*old - 1, length) end
        if at > cell then at = cell end -- ahead of now is now
        if newest - i >= 0 and at > cell - keep then
          s.counts[cell - at + 1] = s.counts[cell - at + 1] + u48(value, 16 + 6*i)
        end
      end
    else
      for i = 0, n - 1 do
        local j = cell - newest + i + 1
        if j > keep then break end
        s.counts[j] = u48(value, 16 + 6*i)
      end
    end
    for i = 1, keep do s.used = s.used + s.counts[i] end
    if s.used >= 281474976710656 then return nil end -- no limit is as large
  end
  cells_outlook(s)
  return s
end

local cells = small{decode = decode_cells, step = take_cells, later = cells_after, encode = encode_cells}
algorithms[2] = cells

function cells.prepare(rule, params) rule.cells = tonumber(params) end

-- @debt
-- Takes units in the cell in which they were used, while it counts.
function cells.owe(s, n, at)
  local i = s.cell - floordiv(at, s.length) + 1
  if i > s.keep then return false end
  s.counts[i] = s.counts[i] + math.min(n, 281474976710655 - s.used)
  return true
end

-- @return
-- Gives back to the cell that the units were taken in, while it counts. Cells of
-- another length give nothing back.
function cells.give_back(value, r, now)
  local n = (#value - 15) / 6
  if n < 1 or n % 1 ~= 0 or byte(value, 1) ~= 102 then return nil, WRONG_VALUE end
  local newest, length, keep = u56(value, 2), u56(value, 9), r.cells + 1
  if length ~= ceildiv(r.window, r.cells) or n ~= keep then return 0 end
  local cell = floordiv(r.at, length)
  if r.at > now or cell <= floordiv(now, length) - keep or cell > newest or cell <= newest - keep then return 0 end
  local place = 16 + 6*(newest - cell)
  local count = u48(value, place)
  local given = math.min(r.cost, count)
  local rest = sub(value, 1, place - 1) .. be48(count - given) .. sub(value, place + 6)
  if sub(rest, 16) == rep('\0', 6*keep) then return given, '' end
  return given, rest, (newest + keep)*length - now
end
