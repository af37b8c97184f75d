-- The fixed window: at most `limit` units in each window. The twin of
-- core/fixedwindow.go.
--
-- value    'u':1  mark:6  ends:7  count:6  last:7
-- mark     how the windows cut time: see WindowMark in core/calendar.go
-- ends     when the window ends that was last taken from, us
-- last     when a unit was taken, us
-- params   mark:6, and behind it '' for windows that begin with a key's first unit, '=' for
--          multiples of the window since the epoch, or else the beginnings of
--          consecutive calendar periods, 7 bytes each, with now within them
--
-- @needs grids.lua
-- @value u 27

-- the window that now is in
local function period(rule, now)
  local periods = rule.periods
  if periods == '' then return now, now + rule.window end
  if periods == '=' then
    local from = now - now % rule.window
    return from, from + rule.window
  end
  if periods == '?' then -- a calendar of another version: a period that follows a known one begins now
    if now < rule.ends then return 0, rule.ends end
    return now, now + rule.window
  end
  for i = 1, #periods - 13, 7 do
    local from, to = u56(periods, i), u56(periods, i + 7)
    if from <= now and now < to then return from, to end
  end
end

-- all units come back together
local function window_after(s)
  return s.ends and sooner(s, s.to - s.now) or s.to - s.now
end

local function window_outlook(s)
  s.room, s.more, s.reset = s.rule.limit - s.used, 0, 0
  if s.used > 0 then
    s.more = window_after(s)
    s.reset = s.more
  end
end

local function take_window(s, n)
  s.used, s.taken = s.used + n, (s.taken or 0) + n
  window_outlook(s)
end

local function encode_window(s)
  local value = s.rule.form .. be56(s.to) .. be48(s.used) .. be56(s.now)
  if s.list then return encode_grids(s, value, s.to - s.now) end
  return value, s.to - s.now
end

-- @rare
-- what grids.lua needs
local function window_grids()
  local as = {}

  -- how long a window with a mark may be, and '' or '=' or '?' as in period
  local function window_of(mark)
    local n = u48(mark, 1)
    local kind = n % 4
    if kind > 1 then return ({3600000000, 93600000000, 612000000000, 2685600000000})[(n - kind)/4 % 4 + 1], '?' end
    return (n - kind) / 4, kind == 1 and '=' or ''
  end

  function as.grid(value)
    if #value ~= 27 or byte(value, 1) ~= 117 then return nil end
    local window, periods = window_of(sub(value, 2, 7))
    if window < 1 or window > 31622400000000 then return nil end
    return {window = window, periods = periods, ends = u56(value, 8), form = sub(value, 1, 7)}
  end

  function as.cuts(value, rule) return sub(value, 1, 7) == rule.form end

  -- A window of the key's own began with the last unit.
  function as.fill(value, rule, at)
    return rule.form .. be56(at + window_of(sub(rule.form, 2))) .. sub(value, 15, 20) .. be56(at)
  end

  function as.add(s, n, at)
    if s.rule.periods == '' and s.used == 0 then s.to = at + s.rule.window end
    s.used = math.min(s.used + n, 281474976710655)
  end

  function as.last(value) return u56(value, 21) end

  function as.ends(value) return u48(value, 15) > 0 and u56(value, 8) or 0 end

  function as.span(value) return (window_of(sub(value, 2, 7))) end

  function as.holds(value) return u48(value, 15) end

  function as.owes(s, at)
    local periods = s.rule.periods
    if periods == '' or periods == '?' then return s.now - at < s.rule.window end
    return at >= s.from
  end

  -- Gives back to the window that the units were taken in, while it lasts.
  function as.give(value, r, now, own)
    local window, periods = window_of(sub(value, 2, 7))
    local ends, count, last = u56(value, 8), u48(value, 15), u56(value, 21)
    local from, to = ends - window, ends
    if periods == '?' then
      if not own then return 0 end -- it may have been in another period
      from, to = period(r, now)
      if not from then return nil, WRONG_CLOCK end
    end
    if r.at < from or r.at > now or now >= to or last < from or last >= to then return 0 end
    local given = math.min(r.cost, count)
    return given, sub(value, 1, 14) .. be48(count - given) .. sub(value, 21)
  end

  return as
end

local function decode_window(value, rule, now)
  local s = {rule = rule, now = now, used = 0}
  s.from, s.to = period(rule, now)
  if not s.from then return nil, WRONG_CLOCK end
  if value then
    if #value ~= 27 or sub(value, 1, 7) ~= rule.form then return decode_grids(window_grids(), value, rule, now) end
    local ends, count, last = u56(value, 8), u48(value, 15), u56(value, 21)
    if rule.periods == '' then
      if ends > s.to and count > 0 then ends, s.redated = s.to, true end -- the clock has stepped back
      if now < ends and count > 0 then s.used, s.to = count, ends end
    elseif count > 0 then
      if last >= s.to then last, s.redated = now, true end
      if last >= s.from then s.used = count end
    end
  end
  window_outlook(s)
  return s
end

local fixed_window = small{decode = decode_window, step = take_window, later = window_after, encode = encode_window,
  outlook = window_outlook}
algorithms[1] = fixed_window

function fixed_window.prepare(rule, params) rule.form, rule.periods = 'u' .. sub(params, 1, 6), sub(params, 7) end

-- @debt
function fixed_window.owe(s, n, at) return owe_grids(window_grids(), s, n, at) end

-- @return
function fixed_window.give_back(value, r, now) return give_back_grids(window_grids(), value, r, now) end
