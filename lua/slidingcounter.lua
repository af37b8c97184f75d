-- The sliding window by two counters: those of the current and the previous
-- window of the clock, the latter weighted by how much of it a window that ends
-- now still covers. The twin of core/slidingcounter.go.
--
-- value    'w':1  last:7  current:6  previous:6  window:6
-- last     when a unit was taken, in the current window, us
--
-- @needs grids.lua
-- @value w 26

local function weighted(s, count, left)
  local whole, rest = muldiv(count, left, s.rule.window)
  return rest > 0 and whole + 1 or whole
end

-- the weight of the previous window fades, and then that of the current one
local function counter_after(s, n)
  local window, us = s.rule.window, 0
  if n <= s.fading then us = s.left - (muldiv(s.fading - n, window, s.previous))
  else us = s.left + window - (muldiv(s.used - n, window, s.current)) end
  return s.ends and sooner(s, us) or us
end

local function counter_outlook(s)
  s.used = s.current + s.fading
  local left = s.rule.limit - s.used
  s.room, s.more, s.reset = left, 0, 0
  if s.used > 0 then
    s.more = counter_after(s, left < 0 and 1 - left or 1)
    s.reset = counter_after(s, s.used)
  end
end

local function take_counter(s, n)
  s.current, s.taken = s.current + n, (s.taken or 0) + n
  counter_outlook(s)
end

local function encode_counter(s, stamp)
  local value = 'w' .. (stamp or be56(s.now)) .. be48(s.current) .. be48(s.previous) .. be48(s.rule.window)
  if s.list then
    if s.place then
      local all, life = s.kind.encode(s, value, s.left + s.rule.window, stamp)
      if all then return all, life end
    end
    return encode_grids(s, value, s.left + s.rule.window)
  end
  return value, s.left + s.rule.window
end

local counter

-- @rare
-- what grids.lua needs
local function counter_grids()
  local as = {rules = {}, all = nil, mark = nil, own = nil, rule = nil, bump = nil, decode = nil, encode = nil} -- reserves space

  function as.mark(value, at) return sub(value, at + 26, at + 28) .. sub(value, at + 48, at + 53) end

  function as.own(rule)
    rule.size, rule.span = 54, 2*rule.window
    return '\0\26w' .. be48(rule.window)
  end

  function as.rule(value, at)
    if #value < at + 53 or sub(value, at + 26, at + 28) ~= '\0\26w' then return nil end
    local window = u48(value, at + 48)
    return window > 0 and window <= 31622400000000 and {window = window, span = 2*window, size = 54}
  end

  function as.bump(value, at, rule, n, now, stamp)
    local window, last, current, previous = rule.window, u56(value, at + 29), u48(value, at + 36), u48(value, at + 42)
    local begins = now - now % window
    local matters = begins + 2*window - now
    if current + previous + n >= 281474976710656 or last >= begins + window then return nil end
    if last >= begins then
      return sub(value, at, at + 28) .. stamp .. be48(current + n) .. sub(value, at + 42, at + 53), matters
    end
    return sub(value, at, at + 28) .. stamp .. be48(n) ..
      (last >= begins - window and sub(value, at + 36, at + 41) or '\0\0\0\0\0\0') .. sub(value, at + 48, at + 53), matters
  end

  by_own_grid(as)

  function as.all()
    if as.grid then return as end

    as.outlook = counter_outlook

    function as.span(rule) return 2*rule.window end

    function as.grid(value, rule)
      if #value ~= 26 or byte(value, 1) ~= 119 then return nil end
      local last, window, sum = u56(value, 2), u48(value, 21), u48(value, 9) + u48(value, 15)
      if window < 1 or window > 31622400000000 or sum >= 281474976710656 then return nil end
      return {value = value, rule = {as = counter, limit = 0, window = window}, mine = window == rule.window, last = last,
        ends = sum > 0 and (floordiv(last, window) + 2)*window or 0, span = 2*window, holds = window, came = nil, used = nil}
    end

    -- The units of a window count at its end.
    function as.fill(g, rule, at)
      local value, counts, begins = g.value, {0, 0}, g.last - g.last % g.rule.window
      local function add(when, n)
        local i = floordiv(at, rule.window) - floordiv(when, rule.window) + 1
        if i <= 2 then counts[i] = counts[i] + n end
      end
      add(at, u48(value, 9))
      if begins > 0 then add(math.min(begins - 1, at), u48(value, 15)) end
      return 'w' .. be56(at) .. be48(counts[1]) .. be48(counts[2]) .. be48(rule.window)
    end

    function as.add(s, n, at)
      n = math.min(n, 281474976710655 - s.current - s.previous)
      if floordiv(at, s.rule.window) == s.at then s.current = s.current + n else s.previous = s.previous + n end
    end

    function as.owes(s, at) return s.at - floordiv(at, s.rule.window) <= 1 end

    -- Gives back to the window that the units were taken in, if it is the current or
    -- the previous one.
    function as.give(g, r, now)
      local value, window, current, previous = g.value, g.rule.window, u48(g.value, 9), u48(g.value, 15)
      local index, mine, given = floordiv(g.last, window), floordiv(r.at, window), 0
      if r.at > now or floordiv(now, window) - mine > 1 then return 0 end
      if mine == index then
        given = math.min(r.cost, current)
        current = current - given
      elseif mine == index - 1 then
        given = math.min(r.cost, previous)
        previous = previous - given
      end
      return given, sub(value, 1, 8) .. be48(current) .. be48(previous) .. sub(value, 21)
    end

    return as
  end

  return as
end

local function decode_counter(value, rule, now, place)
  local window, before = rule.window, place and place + 27 or 0
  if value and not place and (#value ~= 26 or byte(value, 1) ~= 119 or u48(value, 21) ~= window) then
    rule.grids = rule.grids or counter_grids()
    return rule.grids.decode(value, rule, now)
  end
  local at = floordiv(now, window)
  local s = {rule = rule, now = now, at = at, current = 0, previous = 0, left = (at + 1)*window - now,
    used = 0, fading = 0, room = 0, more = 0, reset = 0}
  if value then
    local index, current, previous = floordiv(u56(value, before + 2), window), u48(value, before + 9), u48(value, before + 15)
    if current + previous >= 281474976710656 then return nil end -- no limit is as large
    if index > at then index, current, previous, s.redated = at, current + previous, 0, true end
    if index == at then s.current, s.previous = current, previous
    elseif index == at - 1 then s.previous = current end
  end
  if rule.limit > 0 then
    s.fading = weighted(s, s.previous, s.left)
    counter_outlook(s)
  end
  return s
end

counter = small(decode_counter, take_counter, counter_after, encode_counter)
algorithms[3] = counter

function counter.refuse(rule, k)
  local s = states[k]
  if s.list then join_grids(s, k) end
end

-- @debt
function counter.owe(s, n, at)
  s.rule.grids = s.rule.grids or counter_grids()
  return owe_grids(s.rule.grids.all(), s, n, at)
end

-- Owe of the only grid: see add_units in tellers.lua.
function counter.add_units(rule, value, now, n, stamp)
  local window = rule.window
  if #value ~= 26 or byte(value, 1) ~= 119 or u48(value, 21) ~= window then return nil end
  local current, previous = u48(value, 9), u48(value, 15)
  local later = floordiv(now, window) - floordiv(u56(value, 2), window)
  if later < 0 or current + previous + n >= 281474976710656 then return nil end
  if later > 0 then
    previous = later == 1 and current or 0
    current = 0
  end
  return 'w' .. stamp .. be48(current + n) .. be48(previous) .. sub(value, 21), 2*window - now % window
end

-- @return
function counter.give_back(value, r, now)
  local window, current, previous = r.window, 0, 0
  if #value == 26 and byte(value, 1) == 119 and u48(value, 21) == window then
    current = u48(value, 9)
    previous = u48(value, 15)
  end
  if current + previous < 1 or current + previous >= 281474976710656 then
    return give_back_grids(counter_grids().all(), value, r, now) -- @batch
  end
  local mine = floordiv(r.at, window)
  local given = 0
  local behind = floordiv(u56(value, 2), window) - mine
  if floordiv(now, window) - mine > 1 and mine + behind <= floordiv(now, window) then return 0, '' end -- @settle
  if r.at > now or floordiv(now, window) - mine > 1 then return 0 end
  if behind == 0 then
    given = math.min(r.cost, current)
    current = current - given
  elseif behind == 1 then
    given = math.min(r.cost, previous)
    previous = previous - given
  end
  if current + previous == 0 then return given, '' end
  value = sub(value, 1, 8) .. be48(current) .. be48(previous) .. sub(value, 21)
  if mine + behind <= floordiv(now, window) then return given, value, 2*window, true, nil, nil, true end -- @settle
  if not r.alone or mine + behind ~= floordiv(now, window) then return given, value, 2*window, true end
  local s = {rule = r, current = current, previous = previous, left = window - now % window, used = 0, fading = 0, room = 0, more = 0, reset = 0}
  s.fading = previous > 0 and weighted(s, previous, s.left) or 0
  counter_outlook(s)
  return given, value, 2*window, true, nil, nil, s.room, s.more, s.reset
end
