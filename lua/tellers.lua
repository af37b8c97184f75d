-- What algorithms tell others of their units, and count of those of others. The twin of
-- core/tellers.go.
--
-- @needs small.lua

-- @rare
-- the grid of a value that holds most
local function fullest_of(value, kind)
  local list, most = grids_of(kind, value, {cells = 1, window = 1}), nil
  if not list then return nil end
  for i = 1, #list do
    if not most or list[i].holds > most.holds then most = list[i] end
  end
  return most
end

-- @rare
-- what a value says is spent, oldest first: units and the time to date them, and so on
local function spent_of(algorithm, value, window)
  local out = {}
  if algorithm == 0 then
    local ticks, width, newest = ticks_of(value)
    if not ticks then return out end
    local modulus, read, size = width == 4 and 4294967296 or 281474976710656, width == 4 and u32 or u48, #ticks / width
    local each = ceildiv(size, 32)
    for i = 0, size - 1, each do
      local n = each < size - i and each or size - i
      out[#out + 1] = n
      out[#out + 1] = newest - (newest - read(ticks, (i + n - 1)*width + 1)) % modulus
    end
  elseif algorithm == 1 then
    local g = fullest_of(value, window_grids().all())
    if g and g.holds > 0 then out = {g.holds, g.last} end
  elseif algorithm == 2 then
    local g = fullest_of(value, cells_grids().all())
    if not g then return out end
    local length, keep = u56(g.value, 9), g.rule.cells + 1
    for i = keep - 1, 0, -1 do
      local cell = floordiv(g.last, length) - i
      local n = u48(g.value, 16 + 6*i)
      if cell >= 0 and n > 0 then
        out[#out + 1] = n
        out[#out + 1] = math.min((cell + 1)*length - 1, g.last)
      end
    end
  elseif algorithm == 3 then
    local g = fullest_of(value, counter_grids().all())
    if not g then return out end
    local current, previous, begins = u48(g.value, 9), u48(g.value, 15), g.last - g.last % g.rule.window
    if previous > 0 and begins > 0 then out = {previous, begins - 1} end
    if current > 0 then out[#out + 1], out[#out + 2] = current, g.last end
  elseif algorithm == 4 then
    if u48(value, 2) > 0 then out = {u48(value, 2), u56(value, 14)} end
  elseif algorithm == 6 then
    local ends, part, limit, last = u56(value, 2), u48(value, 9), u48(value, 15), u56(value, 21)
    if ends >= last then
      local whole, rest = muldiv(ends - last, limit, window)
      whole = math.min(whole + ceildiv(rest + part, window), MOST)
      if whole > 0 then out = {whole, last} end
    end
  end
  return out
end

-- Takes n units that others used at a time from a value: the new one, and the us that it
-- matters; or nil if it is the same. For units of now, each algorithm has a function that
-- does without its state, and returns nil unless its version alone cut time for the value, which
-- may be any bytes:
--
--   add_units(rule, value, now, n, stamp)
--
-- @rare
local function tell(rule, value, now, n, at, owed)
  local as = rule.as
  if value and n > 0 and at == now and not owed then
    if tallies.now ~= now then tallies.now, tallies.stamp = now, be56(now) end
    local fresh, life = as.add_units(rule, value, now, n, tallies.stamp)
    if fresh then return fresh, life end
  end
  if as.charge then
    local s, fresh, life = as.charge(rule, value, now, n, at)
    return fresh, life
  end
  local s
  if as == algorithms[1] and rule.kind <= ALIGNED and value and #value == 27 and sub(value, 1, 7) == rule.form then
    s = as.decode(value, rule, now)
    if s and s.used + n > rule.limit then s = nil end -- what is above the limit counts in the next window
  end
  if as == algorithms[1] and not s then
    rule.grids = rule.grids or window_grids()
    local kind = rule.grids.all()
    local list = value and grids_of(kind, value, rule)
    if list then
      local own = rule
      if own.ends then own.ends = 0 end
      for i = 1, #list do if list[i].mine then rule = list[i].rule end end
      rule.limit = own.limit
      if #list > 1 or list[1].holds > 0 then
        s = decode_grids(kind, value, rule, now) -- the version of the tally may have no grid yet
      elseif not list[1].mine then
        value = nil
      end
    end
  end
  s = s or as.decode(value, rule, now)
  if not s then return nil end
  s.carries = true
  local most = nil
  if not owed then most = rule.capacity end
  local owes = as.owe(s, n, at, '\0\0\0\0\0\0\0\0', most)
  if not owes and not s.redated then return nil end
  local fresh, life = as.encode(s, be56(now))
  return fresh, math.max(life, owed and owes and as.remembered or 0)
end
