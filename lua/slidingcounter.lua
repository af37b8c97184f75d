-- The sliding window by two counters: those of the current and the previous
-- window of the clock, the latter weighted by how much of it a window that ends
-- now still covers. The twin of core/slidingcounter.go.
--
-- value    'g':1  index:7  current:6  previous:6  window:6
-- index    the number of the current window since the epoch
--
-- @needs small.lua
-- @value g 26

local function weighted(s, count, left)
  local whole, rest = muldiv(count, left, s.rule.window)
  return rest > 0 and whole + 1 or whole
end

-- the weight of the previous window fades, and then that of the current one
local function counter_after(s, n)
  local window = s.rule.window
  if n <= s.fading then return s.left - (muldiv(s.fading - n, window, s.previous)) end
  return s.left + window - (muldiv(s.used - n, window, s.current))
end

local function counter_outlook(s)
  s.used = s.current + s.fading
  local room = s.rule.limit - s.used
  s.room, s.more, s.reset = room, 0, 0
  if s.used > 0 then
    s.more = counter_after(s, room < 0 and 1 - room or 1)
    s.reset = counter_after(s, s.used)
  end
end

local function take_counter(s, n)
  s.current, s.taken = s.current + n, true
  counter_outlook(s)
end

local function encode_counter(s)
  return 'g' .. be56(s.at) .. be48(s.current) .. be48(s.previous) .. be48(s.rule.window), s.left + s.rule.window
end

local function decode_counter(value, rule, now)
  local window = rule.window
  local at = floordiv(now, window)
  local s = {rule = rule, now = now, at = at, current = 0, previous = 0, left = (at + 1)*window - now}
  if value then
    if #value ~= 26 or byte(value, 1) ~= 103 then return nil end
    local index, current, previous, old = u56(value, 2), u48(value, 9), u48(value, 15), u48(value, 21)
    if current + previous >= 281474976710656 then return nil end -- no limit is as large
    if old ~= window then -- another grid: all that was spent counts in the window of now
      if now < (index + 2)*old then index, current, previous = at, current + previous, 0
      else index, current, previous = 0, 0, 0 end
      s.redated = true
    end
    if index > at then index, current, previous, s.redated = at, current + previous, 0, true end
    if index == at then s.current, s.previous = current, previous
    elseif index == at - 1 then s.previous = current end
  end
  s.fading = weighted(s, s.previous, s.left)
  counter_outlook(s)
  return s
end

local counter = small{decode = decode_counter, step = take_counter, later = counter_after, encode = encode_counter}
algorithms[3] = counter

-- @debt
-- Takes units in the window in which they were used, if it is the current or the previous one.
function counter.owe(s, n, at)
  local mine = floordiv(at, s.rule.window)
  n = math.min(n, 281474976710655 - s.current - s.previous)
  if mine == s.at then s.current = s.current + n
  elseif mine == s.at - 1 then s.previous = s.previous + n
  else return false end
  return true
end

-- @return
-- Gives back to the window that the units were taken in, if it is the current or
-- the previous one.
function counter.give_back(value, r, now)
  if #value ~= 26 or byte(value, 1) ~= 103 then return nil, WRONG_VALUE end
  local index, current, previous = u56(value, 2), u48(value, 9), u48(value, 15)
  local mine, given = floordiv(r.at, r.window), 0
  if u48(value, 21) ~= r.window or r.at > now or floordiv(now, r.window) - mine > 1 then return 0 end
  if mine == index then
    given = math.min(r.cost, current)
    current = current - given
  elseif mine == index - 1 then
    given = math.min(r.cost, previous)
    previous = previous - given
  end
  if current + previous == 0 then return given, '' end
  return given, sub(value, 1, 8) .. be48(current) .. be48(previous) .. sub(value, 21), (index + 2)*r.window - now
end
