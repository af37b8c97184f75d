-- The sliding window by two counters: those of the current and the previous
-- window of the clock, the latter weighted by how much of it a window that ends
-- now still covers. The twin of core/counter.go.
--
-- value    'g':1  index:7  current:6  previous:6  window:6
-- index    the number of the current window since the epoch

local counter = {}

local function weighted(s, count, left)
  local whole, rest = muldiv(count, left, s.rule.window)
  return rest > 0 and whole + 1 or whole
end

function counter.decode(value, rule, now)
  local window = rule.window
  local at = floordiv(now, window)
  local s = {rule = rule, now = now, at = at, current = 0, previous = 0, left = (at + 1)*window - now}
  if value then
    if #value ~= 26 or byte(value, 1) ~= 103 then return nil end
    local index, current, previous, old = u56(value, 2), u48(value, 9), u48(value, 15), u48(value, 21)
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
  s.used = s.current + s.fading
  s.room = rule.limit - s.used
  return s
end

function counter.take(s, n)
  s.room, s.used, s.taken = s.room - n, s.used + n, true
  s.current = s.current + n
end

-- the weight of the previous window fades, and then that of the current one
function counter.after(s, n)
  local window = s.rule.window
  if n <= s.fading then return s.left - (muldiv(s.fading - n, window, s.previous)) end
  return s.left + window - (muldiv(s.used - n, window, s.current))
end

function counter.encode(s)
  return 'g' .. be56(s.at) .. be48(s.current) .. be48(s.previous) .. be48(s.rule.window), s.left + s.rule.window
end
