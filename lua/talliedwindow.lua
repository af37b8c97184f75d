-- The fixed window for taketallied.lua. A value of one grid, which carries what is above the limit,
-- is decided without tables of grids: see as.resume, as.outlook and as.encode in fixedwindow.lua
-- and grids.lua.
--
-- @needs fixedwindow.lua

-- All units come back with the window, but those above the limit with the next one.
local function carried_outlook(s)
  local rule, used, first = s.rule, s.used + s.extra, s.to - s.now
  local limit, above, last = s.taken and rule.limit or s.was, 0, first
  if s.used == 0 and rule.kind == OWN then
    first = s.ended + rule.window - s.now
    last = first
  elseif s.used > 0 and limit > 0 and used > limit then
    above, last = used - limit < limit and used - limit or limit, first + rule.window
  end
  s.first, s.last, s.soon = first, last, used - above -- of all, so many come back first
  s.more, s.reset = 0, 0
  if used > 0 then s.more, s.reset = (s.room < 0 and 1 - s.room or 1) <= s.soon and first or last, last end
end

function fixed_window.decode(value, rule, now, place)
  local carries = value and not place and #value == 56 and rule.kind <= ALIGNED and byte(value, 1) == 120 and sub(value, 28, 36) == '\0\27' .. rule.form
  local s = decode_window(value, rule, now, carries and 2 or place)
  if carries then
    local a, b, c, d, e, f, u, v, w, x, y, z = byte(value, 16, 27)
    local was = ((((a*256 + b)*256 + c)*256 + d)*256 + e)*256 + f
    local extra, ended = ((((u*256 + v)*256 + w)*256 + x)*256 + y)*256 + z, nil
    if s.used == 0 then -- what the window that has passed leaves above its limit
      local count = u48(value, 44)
      ended = u56(value, 37)
      extra = count > 0 and was > 0 and now < ended + rule.window and math.min(math.max(0, extra + count - was), was) or 0
    end
    s.came, s.extra, s.was, s.ended, s.room = sub(value, 2, 8), extra, was, ended, s.room - extra
    carried_outlook(s)
  end
  return s
end

function fixed_window.step(s, n)
  take_window(s, n)
  if s.came then carried_outlook(s) end
end

function fixed_window.later(s, n)
  if s.came then return n <= s.soon and s.first or s.last end
  return window_after(s, n)
end

function fixed_window.encode(s, stamp)
  local value, life = encode_window(s, stamp)
  if not s.came or s.extra == 0 then return value, life end
  local rule = s.rule
  rule.most = rule.most or be48(rule.limit)
  value = 'x' .. s.came .. stamp .. rule.most .. be48(s.extra) .. '\0\27' .. value
  return value, math.max(life, IDLE_GRID + 2*rule.window)
end
