-- What giving back to the token bucket and the leaky bucket share. The twin of
-- core/bucketreturn.go.
--
-- @returned r 141
--
-- A level is how much a bucket lacks: {units, windowths of one}. What was given
-- back before is remembered in a second key:
--
-- value    'r':1  limit:6  window:6  burst:6  at:7  cut:7  left:12  low:12 …8 times
-- limit, window, burst   of the quota of the last return
-- at       when it was, us
-- cut      when a part of a unit was last given back, us
-- left     the level after the last return
-- low      the lowest level in each of the last cells, by the number of the cell
--          modulo 8; together they are as long as a burst takes to refill

local CELLS = 8

local function level_of(missing, back, window)
  if back > 0 then return {missing - 1, window - back} end
  return {missing, 0}
end

local function below(a, b) return a[1] < b[1] or a[1] == b[1] and a[2] < b[2] end
local function lower(a, b) return below(b, a) and b or a end

-- a less a level that is not above it
local function minus(a, b, window)
  local units, part = a[1] - b[1], a[2] - b[2]
  if part < 0 then units, part = units - 1, part + window end
  return {units, part}
end

-- the level after some time in which nothing is taken
local function later(a, r, us)
  local units, part = muldiv(us, r.limit, r.window)
  local back = {units, part}
  return below(back, a) and minus(a, back, r.window) or {0, 0}
end

local function cell_of(r, at) return floordiv(at, r.cell) end

local function encode_returns(m, r)
  local out = {'r', be48(r.limit), be48(r.window), be48(r.burst), be56(m.at), be56(m.cut), be48(m.left[1]), be48(m.left[2])}
  for i = 0, CELLS - 1 do out[#out + 1] = be48(m.lows[i][1]) .. be48(m.lows[i][2]) end
  return table.concat(out)
end

-- what is remembered, brought to now
local function decode_returns(value, r, now, lacks)
  local m = {at = now, cut = 0, lows = {}}
  if not value then
    for i = 0, CELLS - 1 do m.lows[i] = lacks end
  elseif u48(value, 2) ~= r.limit or u48(value, 8) ~= r.window or u48(value, 14) ~= r.burst then
    m.cut = now -- other levels and cells: nothing from before can be given back
    for i = 0, CELLS - 1 do m.lows[i] = {0, 0} end
  else
    m.cut = u56(value, 27)
    for i = 0, CELLS - 1 do m.lows[i] = {u48(value, 46 + 12*i), u48(value, 52 + 12*i)} end
    local at = u56(value, 20)
    local since = later({u48(value, 34), u48(value, 40)}, r, now - at)
    local last, cell = cell_of(r, at), cell_of(r, now)
    for i = last > cell - CELLS and last or cell - CELLS + 1, cell do
      m.lows[i % CELLS] = i > last and since or lower(m.lows[i % CELLS], since)
    end
  end
  return m
end

-- the level after r, how many units came back, and what is to be remembered
local function give(r, now, lacks, remembered)
  r.fills = muldiv(r.burst, r.window, r.limit)
  r.cell = floordiv(r.fills, CELLS - 1) + 1
  local at = remembered and u56(remembered, 20)
  if at and now < at then return lacks, 0 end -- the clock has stepped back
  if at and at + (muldiv(u48(remembered, 14), u48(remembered, 8), u48(remembered, 2))) + 1 <= now then
    at, remembered = nil, nil -- as if the key had expired
  end
  local m = decode_returns(remembered, r, now, lacks)
  local since = at and r.at <= at -- something may have been given back since
  local before = since and r.at < now -- and time has passed
  local exact = not before or r.at > m.cut -- all levels since are whole units away from now's
  local most = later({r.burst - r.remaining - (exact and 0 or 1), 0}, r, now - r.at) -- remaining is rounded down
  if exact and most[2] ~= lacks[2] then most = {most[2] < lacks[2] and most[1] - 1 or most[1], lacks[2]} end
  local alone = not since and most[1] == lacks[1]
  most = lower(most, lacks)
  local cell, first = cell_of(r, now), cell_of(r, r.at)
  if first <= cell - CELLS then first = cell - CELLS + 1 end
  if before then
    for i = first, cell do most = lower(most, m.lows[i % CELLS]) end
  end
  local given = {r.cost, 0}
  if below(most, given) then given, m.cut = most, now end
  if given[1] < 0 or given[1] == 0 and given[2] == 0 then return lacks, 0 end
  local units = given[2] > 0 and given[1] + 1 or given[1]
  -- no other request came since: nothing needs to be remembered
  if alone then return minus(lacks, given, r.window), units end
  for i = first, cell do
    local low = m.lows[i % CELLS]
    m.lows[i % CELLS] = minus(low, lower(low, given), r.window)
  end
  m.left = minus(lacks, given, r.window)
  return m.left, units, encode_returns(m, r)
end

-- whether what is remembered was written by this script
local function remembers(value) return not value or #value == 141 and byte(value, 1) == 114 end
