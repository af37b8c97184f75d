-- The token bucket: `burst` tokens, refilled at `limit` a window. The twin of
-- core/tokenbucket.go.
--
-- value    'h':1  missing:6  part:6  last:7  window:6
-- missing  tokens, when last taken from
-- part     windowths of the last of them that had come back
-- last     when that was, us
-- rule     missing: tokens that a new bucket lacks

-- us until n tokens have come back, of the first of which `back` windowths are there
local function regain(rule, n, back)
  local whole, rest = muldiv(n, rule.window, rule.limit)
  return whole + ceildiv(rest - back, rule.limit)
end

local function bucket_after(s, n) return regain(s.rule, n, s.back) end

local function bucket_outlook(s)
  local room = s.rule.burst - s.used
  s.room, s.more, s.reset = room, 0, 0
  if s.used > 0 then
    s.more = bucket_after(s, room < 0 and 1 - room or 1)
    s.reset = bucket_after(s, s.used)
  end
end

local function take_bucket(s, n)
  s.used, s.taken, s.kept = s.used + n, true, nil
  bucket_outlook(s)
end

-- a bucket that does not begin full fills from the first time it is asked
local function refuse_bucket(s) if s.new then s.redated = true end end

local function encode_bucket(s)
  local missing, part, last = s.used, s.back, s.now
  if s.kept then missing, part, last = s.kept[1], s.kept[2], s.kept[3] end
  return 'h' .. be48(missing) .. be48(part) .. be56(last) .. be48(s.rule.window),
    regain(s.rule, s.used, s.back) + regain(s.rule, s.rule.missing, 0)
end

local function decode_bucket(value, rule, now)
  local s = {rule = rule, now = now, used = rule.missing, back = 0}
  if value then
    if #value ~= 26 or byte(value, 1) ~= 104 then return nil end
    local missing, part, last, window = u48(value, 2), u48(value, 8), u56(value, 14), u48(value, 21)
    if part >= window then return nil end
    if window ~= rule.window then part, s.redated = 0, true end
    if last > now then last, s.redated = now, true end
    if s.redated then s.kept = {missing, part, last} end
    if missing > rule.burst then missing, part = rule.burst, 0 end
    local came, rest = muldiv(now - last, rule.limit, rule.window)
    rest = rest + part
    if rest >= rule.window then came, rest = came + 1, rest - rule.window end
    s.used, s.back = missing - came, rest
    if s.used <= 0 then s.used, s.back = 0, 0 end
  else
    s.new = rule.missing > 0
  end
  bucket_outlook(s)
  return s
end
