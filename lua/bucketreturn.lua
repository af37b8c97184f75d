-- What giving back to the token bucket and the leaky bucket share. The twin of
-- core/bucketreturn.go.
--
-- @value g 33 19
-- @value r 141
--
-- A level is how much a bucket lacks: its units and the windowths of one more. What was
-- given back before is remembered in a second key:
--
-- value    'g':1  limit:6  window:6  burst:6  at:7  cut:7, and for each step, in order,
--          at:7  lacks:6  units:6
-- limit, window, burst   of the quota of the last return
-- at       when it was, us
-- cut      when a part of a unit was last given back, us
-- step     how many units were given back after takes up to a time and level, see there
--
-- Earlier versions wrote an 'r' and other things behind cut. It is as if by another quota.

local STEPS = 8

-- a level after some time in which nothing is taken
local function later(units, part, r, us)
  local came, rest = muldiv(us, r.limit, r.window)
  if came > units or came == units and rest >= part then return 0, 0 end
  if rest > part then return units - came - 1, part - rest + r.window end
  return units - came, part - rest
end

-- @rare
-- The steps of a value with more units, given back now, that were taken when the bucket lacked
-- as much before.
local function with_units(value, r, lacks, now, units, expired)
  local texts, counts, n, found, split, last = {}, {}, 0, false, false, 0 -- a text lacks the units if they have changed
  for i = 34, #value, 19 do
    last = u56(value, i)
    if last >= expired then
      local count, size = u48(value, i + 13), 18
      if not split and last >= r.at then
        local level = u48(value, i + 7)
        split = last > r.at or level > lacks
        found = found or not split and level == lacks
        if split and not found then
          n = n + 1
          texts[n], counts[n] = be56(r.at) .. be48(lacks), count
        end
      end
      if split then
        count, size = count + units, 12
        if count > r.burst then count = r.burst end
      end
      n = n + 1
      texts[n], counts[n] = sub(value, i, i + size), count
    end
  end
  if not split and not found then
    n = n + 1
    texts[n], counts[n] = be56(r.at) .. be48(lacks), 0
  end
  if last < now then
    n = n + 1
    texts[n], counts[n] = be56(now) .. be48(r.burst), units
  end
  while n > STEPS do
    local least, join
    for i = 2, n do
      local by = counts[i] - counts[i - 1]
      if by < 0 then by = -by end
      if not least or by < least then least, join = by, i end
    end
    if counts[join - 1] > counts[join] then texts[join], counts[join] = sub(texts[join], 1, 13), counts[join - 1] end
    table.remove(texts, join - 1)
    table.remove(counts, join - 1)
    n = n - 1
  end
  for i = 1, n do
    if #texts[i] == 13 then texts[i] = texts[i] .. be48(counts[i]) end
  end
  return table.concat(texts)
end

-- How much of r comes back to a level of units and a part: units and a part of one, what
-- is to be remembered, and for how long, us.
local function give(r, now, units, part, remembered)
  local burst, limit, window, cost = r.burst, r.limit, r.window, r.cost
  local fills = muldiv(burst, window, limit)
  local at, cut, steps = nil, 0, ''
  if remembered then
    at = u56(remembered, 20)
    if now < at then return 0, 0 end -- the clock has stepped back
    if at + (muldiv(u48(remembered, 14), u48(remembered, 8), u48(remembered, 2))) + 1 <= now then
      at = nil -- as if the key had expired
    elseif byte(remembered, 1) == 103 and u48(remembered, 2) == limit and u48(remembered, 8) == window and u48(remembered, 14) == burst then
      cut, steps = u56(remembered, 27), remembered
    else -- other levels: nothing from before can be given back
      cut, steps = at, rep(' ', 33) .. sub(remembered, 20, 26) .. rep(be48(burst), 2)
    end
  end
  local since = at and r.at <= at -- something may have been given back since
  local before = since and r.at < now -- and time has passed
  local exact = not before or r.at > cut -- all levels since are whole units away from now's
  local took = burst - u48(r.list, r.i + 15) -- what the bucket lacked then, rounded up
  local most, rest = took, 0
  if not exact then
    most = most - 1
    local full = u56(r.list, r.i + 21)
    if full > 0 then
      local less, odd = muldiv(full - 1, limit, window)
      if less == most then rest = odd end -- within a microsecond's refill
    end
  end
  if before then
    for i = 34, #steps, 19 do
      local upto = u56(steps, i)
      if r.at < upto or r.at == upto and took <= u48(steps, i + 7) then
        most = most - u48(steps, i + 13)
        break
      end
    end
  end
  most, rest = later(most, rest, r, now - r.at)
  if exact and rest ~= part then
    if rest < part then most = most - 1 end
    rest = part
  end
  local alone = not since and most == units
  if units < most or units == most and part < rest then most, rest = units, part end
  local all = most >= cost
  if all then most, rest = cost, 0 end
  if most < 0 or most == 0 and rest == 0 then return 0, 0 end
  if alone then return most, rest end -- no other request came since: nothing needs to be remembered
  if not all then cut = now end
  local came = rest > 0 and most + 1 or most
  local list = with_units(steps, r, took - came, now, came, now - fills)
  return most, rest, 'g' .. be48(limit) .. be48(window) .. be48(burst) .. be56(now) .. be56(cut) .. list, fills + 1
end
