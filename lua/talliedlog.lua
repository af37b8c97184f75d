-- The sliding log for taketallied.lua, as an algorithm with a small state: see small.lua. It knows
-- strings that only this version has written, of times up to now.
--
-- @needs slidinglog.lua

function log.decode(value, rule, now)
  local s = {rule = rule, room = rule.limit, more = 0, reset = 0, taken = 0, span = 0, value = '', first = 1}
  if not value then return s end
  local head, width, modulus, newest, tick, age = rule.head, 4, 4294967296, nil, nil, nil
  if not rule.short then width, modulus = 6, 281474976710656 end
  local first, last = #head + 1, #value - 6
  local size = last - first
  if size < 0 or size % width ~= 0 or size >= STRING_MOST*width or size >= rule.limit*width or sub(value, 1, first - 1) ~= head then return nil end
  local a, b, c, d, e, f, g = byte(value, last, last + 6)
  if width == 4 then
    tick = ((a*256 + b)*256 + c)*256 + d
    newest = ((e*256 + f)*256 + g)*4294967296 + tick
  else
    tick = ((((a*256 + b)*256 + c)*256 + d)*256 + e)*256 + f
    newest = g*281474976710656 + tick
  end
  if newest > now then return nil end
  local span, i = rule.window - (now - newest), first - width -- a unit is live while it is less than this older than the newest
  if span <= 0 then return s end
  repeat
    i = i + width
    if i == first + 8*width then i = first + count_until(sub(value, first, width - 8), width, newest, newest - span)*width end
    a, b, c, d, e, f = byte(value, i, i + width - 1)
    age = ((a*256 + b)*256 + c)*256 + d
    if width == 6 then age = (age*256 + e)*256 + f end
    age = (tick - age) % modulus
  until age < span
  s.room, s.more, s.reset, s.span, s.value, s.first = rule.limit - (last - i)/width - 1, span - age, span, span, value, i
  return s
end

function log.step(s, n)
  s.room, s.taken, s.reset = s.room - n, s.taken + n, s.rule.window
  if s.more == 0 then s.more = s.rule.window end
end

-- the n oldest units must leave
function log.later(s, n)
  local value, width, window, read, modulus = s.value, 4, s.rule.window, u32, 4294967296
  if not s.rule.short then width, read, modulus = 6, u48, 281474976710656 end
  local i, last = s.first + (n - 1)*width, #value - 6
  if i > last then return window end -- one that was taken by this call
  return s.span - (read(value, last) - read(value, i)) % modulus
end

-- It returns nil if there are too many units for a string.
function log.encode(s, stamp)
  local rule, n, width = s.rule, s.taken, s.rule.short and 4 or 6
  if rule.limit - s.room > STRING_MOST then return nil end
  local tick = sub(stamp, 8 - width)
  return rule.head .. sub(s.value, s.first, width - 8) .. (n == 1 and tick or rep(tick, n)) .. sub(stamp, 1, 7 - width), rule.window
end
