-- What the leaky bucket and the queue share: a schedule, which is the time at
-- which the last of their units has passed, at `limit` a window. The twin of
-- core/schedule.go.
--
-- value    'i':1  end:7  part:6  limit:6
-- end      us, rounded down;  part: limit-ths of a us that it is later
--
-- @needs small.lua
-- @value i 20

local function schedule(value, rule, now, most)
  local s = {rule = rule, now = now, ahead = 0, part = 0}
  if value then
    if #value ~= 20 or byte(value, 1) ~= 105 then return nil end
    local stop, part, limit = u56(value, 2), u48(value, 9), u48(value, 15)
    if part >= limit then return nil end
    if limit ~= rule.limit then
      if part > 0 then stop, part = stop + 1, 0 end
      s.redated = true
    end
    if stop > now then -- never longer than it can be: the clock has stepped back, or most has changed
      local longest, rest = muldiv(most, rule.window, rule.limit)
      if stop - now > longest or stop - now == longest and part > rest then
        stop, part, s.redated = now + longest, rest, true
      end
    end
    if stop >= now then s.ahead, s.part = stop - now, part
    elseif s.redated then s.redated = nil end
  end
  return s
end

-- units that have not passed, one that is passing included
local function units(s)
  local whole, rest = muldiv(s.ahead, s.rule.limit, s.rule.window)
  return whole + ceildiv(rest + s.part, s.rule.window)
end

local function append(s, n)
  local whole, rest = muldiv(n, s.rule.window, s.rule.limit)
  rest = rest + s.part
  s.part = rest % s.rule.limit
  s.ahead = s.ahead + whole + (rest - s.part) / s.rule.limit
end

-- us until no more than n units have not passed
local function passed(s, n)
  local whole, rest = muldiv(n, s.rule.window, s.rule.limit)
  return s.ahead - whole - floordiv(rest - s.part, s.rule.limit)
end

local function encode_schedule(s)
  return 'i' .. be56(s.now + s.ahead) .. be48(s.part) .. be48(s.rule.limit), s.ahead + 1
end
