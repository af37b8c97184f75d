-- The fixed window: at most `limit` units in each window. The twin of
-- core/fixedwindow.go.
--
-- value    'e':1  start:7  count:6        of the window that was last taken from
-- params   periods: '' for windows that begin with a key's first unit, '=' for
--          multiples of the window since the epoch, or else the beginnings of
--          consecutive calendar periods, 7 bytes each, with now within them
--
-- @needs small.lua
-- @value e 14

-- the window that now is in
local function period(rule, now)
  local periods = rule.periods
  if periods == '' then return now, now + rule.window end
  if periods == '=' then
    local from = now - now % rule.window
    return from, from + rule.window
  end
  for i = 1, #periods - 13, 7 do
    local from, to = u56(periods, i), u56(periods, i + 7)
    if from <= now and now < to then return from, to end
  end
end

local function take_window(s, n)
  s.room, s.used, s.taken = s.room - n, s.used + n, true
  s.more = s.to - s.now
  s.reset = s.more
end

-- all units come back together
local function window_after(s) return s.to - s.now end

local function encode_window(s)
  return 'e' .. be56(s.from) .. be48(s.used), s.to - s.now
end

local function decode_window(value, rule, now)
  local s = {rule = rule, now = now, used = 0, more = 0, reset = 0}
  s.from, s.to = period(rule, now)
  if not s.from then return nil, WRONG_CLOCK end
  if value then
    if #value ~= 14 or byte(value, 1) ~= 101 then return nil end
    local start, count = u56(value, 2), u48(value, 9)
    if rule.periods == '' and start <= now and now < start + rule.window then
      s.from, s.to = start, start + rule.window
    end
    if start > s.from then start, s.redated = s.from, true end
    if start == s.from then s.used = count end
  end
  s.room = rule.limit - s.used
  if s.used > 0 then s.more, s.reset = s.to - now, s.to - now end
  return s
end

local fixed_window = small{decode = decode_window, step = take_window, later = window_after, encode = encode_window}
algorithms[1] = fixed_window

function fixed_window.prepare(rule, params) rule.periods = params end

-- @debt
-- Takes units that were used in the window, or if it is the key's own, less than a window ago.
function fixed_window.owe(s, n, at)
  local window, own, from, to = s.rule.window, s.rule.periods == '', s.from, s.to
  if own and s.used == 0 then from, to = at, at + window end
  if s.now >= to or at < from and (not own or s.now - at >= window) then return false end
  s.from, s.to, s.used = from, to, math.min(s.used + n, 281474976710655)
  return true
end

-- @return
-- Gives back to the window that the units were taken in, while it lasts.
function fixed_window.give_back(value, r, now)
  if #value ~= 14 or byte(value, 1) ~= 101 then return nil, WRONG_VALUE end
  local start, count = u56(value, 2), u48(value, 9)
  local from, to = start, start + r.window
  if r.periods ~= '' then from, to = period(r, now) end
  if not from then return nil, WRONG_CLOCK end
  if start ~= from or r.at < from or r.at > now or now >= to then return 0 end
  local given = math.min(r.cost, count)
  if given == count then return given, '' end
  return given, sub(value, 1, 8) .. be48(count - given), to - now
end
