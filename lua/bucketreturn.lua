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

-- A level is two numbers here, its units and the windowths of one more.

local CELLS = 8

-- a level after some time in which nothing is taken
local function later(units, part, r, us)
  local came, rest = muldiv(us, r.limit, r.window)
  if came > units or came == units and rest >= part then return 0, 0 end
  if rest > part then return units - came - 1, part - rest + r.window end
  return units - came, part - rest
end

-- @rare
-- What is remembered, brought to now: the cells, and when a part of a unit was given back.
local function lows_of(value, same, r, now, length, units, part)
  local lows = {}
  if not same then
    local low = value and rep('\0', 12) or be48(units) .. be48(part) -- with other levels and cells, nothing from before can be given back
    for i = 0, CELLS - 1 do lows[i] = low end
    return lows
  end
  for i = 0, CELLS - 1 do lows[i] = sub(value, 46 + 12*i, 57 + 12*i) end
  local at = u56(value, 20)
  local last = floordiv(at, length)
  local cell = floordiv(now, length)
  units, part = later(u48(value, 34), u48(value, 40), r, now - at)
  local since = be48(units) .. be48(part)
  for i = last > cell - CELLS and last or cell - CELLS + 1, cell do
    local low = lows[i % CELLS]
    local whole = u48(low, 1)
    if i > last or units < whole or units == whole and part < u48(low, 7) then lows[i % CELLS] = since end
  end
  return lows
end

-- How much of r comes back to a level of units and a part: units and a part of one, what
-- is to be remembered, and for how long, us.
local function give(r, now, units, part, remembered)
  local burst, limit, window, cost = r.burst, r.limit, r.window, r.cost
  local fills = muldiv(burst, window, limit)
  local length = floordiv(fills, CELLS - 1) + 1
  local at = remembered and u56(remembered, 20)
  if at and now < at then return 0, 0 end -- the clock has stepped back
  if at and at + (muldiv(u48(remembered, 14), u48(remembered, 8), u48(remembered, 2))) + 1 <= now then
    at, remembered = nil, nil -- as if the key had expired
  end
  local same = at and u48(remembered, 2) == limit and u48(remembered, 8) == window and u48(remembered, 14) == burst
  local cut = 0
  if same then cut = u56(remembered, 27) elseif at then cut = now end
  local since = at and r.at <= at -- something may have been given back since
  local before = since and r.at < now -- and time has passed
  local exact = not before or r.at > cut -- all levels since are whole units away from now's
  local most, rest = later(burst - u48(r.list, r.i + 15) - (exact and 0 or 1), 0, r, now - r.at) -- what remained is rounded down
  if exact and rest ~= part then
    if rest < part then most = most - 1 end
    rest = part
  end
  local alone = not since and most == units
  local lows, first, cell
  if not alone then
    if units < most or units == most and part < rest then most, rest = units, part end
    lows = lows_of(remembered, same, r, now, length, units, part)
    cell = floordiv(now, length)
    first = floordiv(r.at, length)
    if first <= cell - CELLS then first = cell - CELLS + 1 end
    for i = before and first or cell + 1, cell do
      local low = lows[i % CELLS]
      local whole = u48(low, 1)
      local odd = u48(low, 7)
      if whole < most or whole == most and odd < rest then most, rest = whole, odd end
    end
  end
  if most < cost then cut = now else most, rest = cost, 0 end
  if most < 0 or most == 0 and rest == 0 then return 0, 0 end
  if alone then return most, rest end -- no other request came since: nothing needs to be remembered
  for i = first, cell do
    local whole = u48(lows[i % CELLS], 1)
    local odd = u48(lows[i % CELLS], 7)
    if whole < most or whole == most and odd <= rest then
      whole, odd = 0, 0
    else
      whole, odd = whole - most, odd - rest
      if odd < 0 then whole, odd = whole - 1, odd + window end
    end
    lows[i % CELLS] = be48(whole) .. be48(odd)
  end
  units, part = units - most, part - rest
  if part < 0 then units, part = units - 1, part + window end
  return most, rest, (same and sub(remembered, 1, 19) or 'r' .. be48(limit) .. be48(window) .. be48(burst)) ..
    be56(now) .. be56(cut) .. be48(units) .. be48(part) .. lows[0] .. table.concat(lows), fills + 1
end
