-- The token bucket: `burst` tokens, refilled at `limit` a window. The twin of
-- core/tokenbucket.go.
--
-- value    'h':1  missing:6  part:6  last:7  window:6
-- missing  tokens, when last taken from
-- part     windowths of the last of them that were refilled
-- last     when that was, us
-- params   the burst, and the tokens that a new bucket lacks
--
-- @needs small.lua
-- @value h 26

local NEW_AGAIN = 3600000000 -- how long a full bucket that did not begin full is remembered, us

-- us until n tokens are refilled, if `back` windowths of the first are there
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
  if s.debt then
    s.debt = s.debt + n
    s.used = s.debt
    if s.used > s.rule.burst then s.used, s.back = s.rule.burst, 0 end
  end
  bucket_outlook(s)
end

local function encode_bucket(s)
  local missing, part, last = s.debt or s.used, s.back, s.now
  if s.kept then missing, part, last = s.kept[1], s.kept[2], s.kept[3] end
  return 'h' .. be48(missing) .. be48(part) .. be56(last) .. be48(s.rule.window),
    regain(s.rule, s.used, s.back) + (s.rule.missing > 0 and NEW_AGAIN or 0)
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
    local lacked = missing
    if missing > rule.burst then missing, part = rule.burst, 0 end
    local came, rest = muldiv(now - last, rule.limit, rule.window)
    rest = rest + part
    if rest >= rule.window then came, rest = came + 1, rest - rule.window end
    s.used, s.back = missing - came, rest
    if s.used <= 0 then
      s.used, s.back = 0, 0
      if rule.missing > 0 and now >= last + regain(rule, missing, part) + NEW_AGAIN then
        s.used, s.new = rule.missing, true -- as if the key had expired
      end
    elseif lacked > rule.burst then
      s.debt = lacked - came -- for a burst that is raised again
    end
  else
    s.new = rule.missing > 0
  end
  bucket_outlook(s)
  return s
end

local token_bucket = small{decode = decode_bucket, step = take_bucket, later = bucket_after, encode = encode_bucket}
algorithms[4] = token_bucket

function token_bucket.prepare(rule, params)
  local burst, missing = string.match(params, '^(%d+),(%d+)$')
  rule.burst, rule.missing = tonumber(burst), tonumber(missing)
  rule.capacity = rule.burst
end

-- a bucket that does not begin full refills from its first charge on
function token_bucket.refuse(rule, k)
  local s = states[k]
  if s.new then s.kept, redated[k] = nil, true end
end

-- @return
-- @needs bucketreturn.lua
token_bucket.returned = true

function token_bucket.give_back(value, r, now, remembered)
  if #value ~= 26 or byte(value, 1) ~= 104 or not remembers(remembered) then return nil, WRONG_VALUE end
  local missing, part, last, window = u48(value, 2), u48(value, 8), u56(value, 14), u48(value, 21)
  if part >= window then return nil, WRONG_VALUE end
  if window ~= r.window or missing > r.burst or last > now or r.at > now then return 0 end
  local came, rest = muldiv(now - last, r.limit, window)
  rest = rest + part
  if rest >= window then came, rest = came + 1, rest - window end
  local lacks = {missing - came, 0}
  if lacks[1] <= 0 then return 0 end
  if rest > 0 then lacks = {lacks[1] - 1, window - rest} end
  local left, given, memory = give(r, now, lacks, remembered)
  if given == 0 then return 0 end
  missing, part = left[1], 0
  if left[2] > 0 then missing, part = missing + 1, window - left[2] end
  if missing + r.missing == 0 then return given, '', 0, memory end
  return given, 'h' .. be48(missing) .. be48(part) .. be56(now) .. be48(window),
    regain(r, missing, part) + (r.missing > 0 and NEW_AGAIN or 0), memory
end
