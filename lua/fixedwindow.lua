-- The fixed window: at most `limit` units in each window. The twin of
-- core/fixedwindow.go.
--
-- value    'u':1  mark:6  ends:7  count:6  last:7
-- mark     how the windows cut time: see WindowMark in core/calendar.go
-- ends     when the window ends that was last taken from, us
-- last     when a unit was taken, us
-- params   'u':1  mark:6, and behind them for a calendar the beginnings of consecutive
--          periods, 7 bytes each, with now before the last two
--
-- @needs grids.lua
-- @value u 27

local OWN, ALIGNED = 0, 1 -- kinds of a mark: windows that begin with a key's first unit; or with multiples of their length

-- the window that now is in, and in a known calendar when the next one ends
local function period(rule, now)
  if rule.kind == OWN then return now, now + rule.window end
  if rule.kind == ALIGNED then
    local from = now - now % rule.window
    return from, from + rule.window
  end
  local periods = rule.periods
  if not periods then -- a calendar of another version: a period that follows a known one begins now
    if now < rule.ends then return 0, rule.ends end
    return now, now + rule.window
  end
  for i = 8, #periods - 20, 7 do
    local from, to = u56(periods, i), u56(periods, i + 7)
    if from <= now and now < to then return from, to, u56(periods, i + 14) end
  end
end

-- @rare
-- All units come back together, but for those above the limit that other versions or a debt took.
local function after_windows(s, n)
  if not s.mine and not s.taken then return sooner(s, s.to - s.now) end
  if s.ends and s.ends <= s.now then return s.to - s.now end
  local limit, above = s.rule.limit, 0
  if not s.taken then limit = s.was end
  if s.used == 0 and s.rule.kind ~= OWN then return s.to - s.now end
  if s.used == 0 then return u56(s.place and sub(s.list, s.place + 28) or s.own, 8) + s.kind.span(s.rule) - s.now end
  above = s.kind.above(s.extra or 0, s.used, limit)
  if n <= s.used + (s.extra or 0) - above then return s.to - s.now end
  local _, _, after = period(s.rule, s.now)
  return (after or s.to + s.kind.span(s.rule)) - s.now
end

local function window_after(s, n)
  if s.list then return after_windows(s, n) end
  return s.to - s.now
end

local function take_window(s, n)
  s.room, s.used, s.taken = s.room - n, s.used + n, (s.taken or 0) + n
  if s.list then return s.kind.outlook(s) end
  s.more = s.to - s.now
  s.reset = s.more
end

local function encode_window(s, stamp)
  local value = s.rule.form .. be56(s.to) .. be48(s.used) .. (stamp or be56(s.now))
  if s.list then
    if s.place then
      local all, life = s.kind.encode(s, value, s.to - s.now, stamp)
      if all then return all, life end
    end
    return encode_grids(s, value, s.to - s.now)
  end
  return value, s.to - s.now
end

local fixed_window

-- @rare
-- how long a window with the mark of a value may be, and its kind
local function window_of(value)
  local n = u48(value, 2)
  local kind = n % 4
  if kind > ALIGNED then return ({3600000000, 93600000000, 612000000000, 2685600000000})[(n - kind)/4 % 4 + 1], kind end
  return (n - kind) / 4, kind
end

-- @rare
-- what grids.lua needs
local function window_grids()
  local as = {rules = {}, all = nil, mark = nil, own = nil, rule = nil, bump = nil, resume = nil, outlook = nil, decode = nil,
    encode = nil, span = nil, above = nil, follows = nil} -- reserves space

  function as.mark(value, at) return sub(value, at + 26, at + 34) end

  function as.own(rule)
    rule.size, rule.span = 55, window_of(rule.form)
    return '\0\27' .. rule.form
  end

  function as.rule(value, at)
    if #value < at + 54 or sub(value, at + 26, at + 28) ~= '\0\27u' then return nil end
    local window, kind = window_of(sub(value, at + 28, at + 34))
    return window > 0 and window <= 31622400000000 and {window = window, kind = kind, span = window, size = 55, ends = nil}
  end

  function as.span(rule) return (window_of(rule.form)) end

  function as.above(extra, count, limit)
    if limit == 0 then return 0 end
    return math.min(math.max(0, extra + count - limit), limit)
  end

  -- whether the window after one that ended goes on
  function as.follows(rule, ends, now)
    if rule.kind == OWN or not rule.periods then return now < ends + (rule.span or as.span(rule)) end
    return period(rule, now) <= ends
  end

  -- what the window of the grid at a place leaves above its limit, when it has passed
  local function left(value, at, rule, now)
    local count = u48(value, at + 42)
    if count == 0 or not as.follows(rule, u56(value, at + 35), now) then return 0 end
    return as.above(u48(value, at + 20), count, u48(value, at + 14))
  end

  function as.outlook(s)
    local used = s.used + (s.extra or 0)
    s.more, s.reset = 0, 0
    if used == s.used and used > 0 and used <= (s.taken and s.rule.limit or s.was or 0) then
      s.more = s.to - s.now
      s.reset = s.more
    elseif used > 0 then
      s.more = window_after(s, s.room < 0 and 1 - s.room or 1)
      s.reset = window_after(s, used)
    end
  end

  function as.resume(s)
    local value, at = s.list, s.place
    s.extra, s.was = u48(value, at + 20), u48(value, at + 14)
    if s.used == 0 then s.extra = left(value, at, s.rule, s.now) end
    if s.extra > 0 or s.used > s.was then -- or it is as if there were no others
      s.room = s.room - s.extra
      as.outlook(s)
    end
  end

  function as.bump(value, at, rule, n, now, stamp)
    local ends, count = u56(value, at + 35), u48(value, at + 42)
    rule.ends = ends
    local from, to = period(rule, now)
    local open, extra, limit = count > 0 and now < ends, u48(value, at + 20), u48(value, at + 14)
    if rule.kind ~= OWN then open = count > 0 and u56(value, at + 48) >= from elseif open and ends < to then to = ends end
    if open then
      count = count + n
      if count > 281474976710655 then count = 281474976710655 end
      value = to == ends and sub(value, at, at + 41) or sub(value, at, at + 34) .. be56(to)
    else
      extra, count = left(value, at, rule, now), n
      value = sub(value, at, at + 19) .. be48(extra) .. sub(value, at + 26, at + 34) .. be56(to)
    end
    local life = rule.kind > ALIGNED and rule.span or to - now -- a period may begin now
    if extra + count > limit and limit > 0 then life = to - now + rule.span end
    return value .. be48(count) .. stamp, life
  end

  by_own_grid(as)

  function as.all()
    if as.grid then return as end

    function as.grid(value, rule)
      if #value ~= 27 or byte(value, 1) ~= 117 then return nil end
      local window, kind = window_of(value)
      if window < 1 or window > 31622400000000 then return nil end
      local form, ends, count = sub(value, 1, 7), u56(value, 8), u48(value, 15)
      return {value = value, rule = {as = fixed_window, limit = 0, window = window, kind = kind, ends = ends, form = form},
        mine = form == rule.form, last = u56(value, 21), ends = count > 0 and ends or 0, span = window, holds = count, came = nil, used = nil}
    end

    -- A window of the key's own began with the last unit.
    function as.fill(g, rule, at)
      local ends = at + window_of(rule.form)
      if rule.kind == ALIGNED then ends = ends - at % rule.window end
      if rule.ends then rule.ends = ends end
      return rule.form .. be56(ends) .. sub(g.value, 15, 20) .. be56(at)
    end

    function as.add(s, n, at)
      if s.rule.kind == OWN and s.used == 0 then s.to = at + s.rule.window end
      s.used = math.min(s.used + n, 281474976710655)
    end

    function as.owes(s, at)
      local rule = s.rule
      if rule.kind == OWN or rule.kind > ALIGNED and not rule.periods then return s.now - at < rule.window end
      return at >= period(rule, s.now)
    end

    -- Gives back to the window that the units were taken in, while it lasts.
    function as.give(g, r, now)
      local value, count = g.value, u48(g.value, 15)
      local to = u56(value, 8)
      local from = to - g.rule.window
      if g.rule.kind > ALIGNED then
        if not g.mine then return 0 end -- it may have been in another period
        from, to = period(r, now)
        if not from then return nil, WRONG_CLOCK end
      end
      if r.at < from or r.at > now or now >= to or g.last < from or g.last >= to then return 0 end
      local given = math.min(r.cost, count)
      return given, sub(value, 1, 14) .. be48(count - given) .. sub(value, 21)
    end

    function as.reopen(g, r, now)
      local ends = u56(g.value, 8) - g.rule.window
      if g.rule.kind > ALIGNED then ends = period(r, now) end
      return sub(g.value, 1, 7) .. be56(ends) .. be48(g.limit + g.extra) .. be56(ends - 1)
    end

    return as
  end

  return as
end

local function decode_window(value, rule, now, place)
  if value and not place and (#value ~= 27 or sub(value, 1, 7) ~= rule.form) then
    rule.grids = rule.grids or window_grids()
    return rule.grids.decode(value, rule, now)
  end
  local from, to = period(rule, now)
  if not from then return nil, WRONG_CLOCK end
  local s, before
  if place then
    before = place + 27
    s = {rule = rule, now = now, to = to, used = 0, room = rule.limit, more = 0, reset = 0, taken = nil,
      kind = nil, list = nil, place = nil, mine = nil, extra = nil, was = nil}
  else
    before = 0
    s = {rule = rule, now = now, to = to, used = 0, room = rule.limit, more = 0, reset = 0, taken = nil}
  end
  if value then
    local count = u48(value, before + 15)
    if count > 0 and rule.kind == OWN then
      local ends = u56(value, before + 8)
      if ends > to then ends, s.redated = to, true end -- the clock has stepped back
      if now < ends then s.to, s.used = ends, count end
    elseif count > 0 then
      local last = u56(value, before + 21)
      if last >= to then last, s.redated = now, true end
      if last >= from then s.used = count end
    end
    if s.used > 0 then
      s.room, s.more = rule.limit - count, s.to - now
      s.reset = s.more
    end
  end
  return s
end

fixed_window = small(decode_window, take_window, window_after, encode_window)
algorithms[1] = fixed_window

function fixed_window.prepare(rule, params)
  rule.kind = byte(params, 7) % 4
  if rule.kind > ALIGNED then rule.form, rule.periods = sub(params, 1, 7), params else rule.form = params end
end

function fixed_window.refuse(rule, k)
  local s = states[k]
  if s.list then join_grids(s, k) end
end

-- @debt
function fixed_window.owe(s, n, at)
  s.rule.grids = s.rule.grids or window_grids()
  local kind = s.rule.grids.all()
  local forgotten = not s.mine and (not s.list or #s.list == 1 and s.ends <= s.now)
  if s.carries and s.rule.debt and forgotten and kind.owes(s, at) then
    s.kind, s.mine = kind, {came = not s.list and s.used > 0 and 0 or s.now}
    s.list = {s.mine}
  elseif not s.carries then
    s.before = s.used -- only what was above the limit already is carried
  end
  return owe_grids(kind, s, n, at)
end

-- Owe of the only grid, of which the next window counts what is above the limit: see
-- add_units in tellers.lua.
function fixed_window.add_units(rule, value, now, n, stamp)
  local kind, limit, form, others = rule.kind, rule.limit, rule.form, #value == 56
  local came, was, extra, at = '\0\0\0\0\0\0\0', 0, 0, 1
  if others then came, was, extra, at = sub(value, 2, 8), u48(value, 16), u48(value, 22), 30 end
  if kind > ALIGNED or others and sub(value, 28, 29) ~= '\0\27' or not others and #value ~= 27 or sub(value, at, at + 6) ~= form then return nil end
  local from, to = period(rule, now)
  local a, b, c, d, e, f, g, h, i, j, k, l, m, t, u, v, w, x, y, z = byte(value, at + 7, at + 26)
  local ends = (((((a*256 + b)*256 + c)*256 + d)*256 + e)*256 + f)*256 + g
  local used = ((((h*256 + i)*256 + j)*256 + k)*256 + l)*256 + m
  local last = (((((t*256 + u)*256 + v)*256 + w)*256 + x)*256 + y)*256 + z
  if kind == OWN and ends > to or kind == ALIGNED and last >= to or used + n > 281474976710655 then return nil end
  if kind == OWN and now < ends then
    to = ends
  elseif kind == OWN or last < from then -- what the window that has passed leaves above its limit
    extra = now < ends + rule.window and was > 0 and math.min(math.max(0, extra + used - was), was) or 0
    used = 0
  end
  used = used + n
  local above = used + extra - limit
  local fresh = form .. (to == ends and sub(value, at + 7, at + 13) or be56(to)) .. be48(used) .. stamp
  if extra == 0 and above <= 0 then return fresh, to - now end
  rule.most = rule.most or be48(limit)
  return 'x' .. came .. stamp .. rule.most .. (extra > 0 and be48(extra) or '\0\0\0\0\0\0') .. '\0\27' .. fresh, math.max(to - now + (above > 0 and rule.window or 0), IDLE_GRID + 2*rule.window)
end

-- @return
function fixed_window.give_back(value, r, now)
  if #value ~= 27 or sub(value, 1, 7) ~= r.form then
    return give_back_grids(window_grids().all(), value, r, now) -- @batch
  end
  local to = u56(value, 8)
  local from = to - r.window
  if r.kind > ALIGNED then
    from, to = period(r, now)
    if not from then return nil, WRONG_CLOCK end
  end
  local count = u48(value, 15)
  local last = u56(value, 21)
  if last <= now and now >= to then return 0, '' end -- @settle
  if r.at < from or r.at > now or now >= to or last < from or last >= to then return 0 end
  if r.cost >= count then return count, '' end
  count = count - r.cost
  return r.cost, sub(value, 1, 14) .. be48(count) .. sub(value, 21), to - now, true, nil, nil, r.limit - count, to - now, to - now
end
