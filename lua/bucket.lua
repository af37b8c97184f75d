-- The token bucket and the leaky bucket: `burst` tokens, refilled at `limit` a window.
-- The twin of core/tokenbucket.go.
--
-- value    form:1  missing:6  part:6  last:7  window:6
-- form     'h', or 'o' if debts took more than the burst, all of which is missing
-- missing  tokens, when last taken from
-- part     windowths of the last of them that were refilled
-- last     when that was, us
-- params   the burst, and the tokens that a new bucket lacks, if any
--
-- @needs small.lua
-- @value h 26
-- @value o 26

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
  s.used, s.taken, s.kept, s.owes = s.used + n, true, nil, nil
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
  return (s.owes and 'o' or 'h') .. be48(missing) .. be48(part) .. be56(last) .. be48(s.rule.window),
    regain(s.rule, s.used, s.back) + (s.rule.missing > 0 and NEW_AGAIN or 0)
end

local function decode_bucket(value, rule, now)
  local s = {rule = rule, now = now, used = rule.missing, back = 0}
  if value then
    local form, most = byte(value, 1), rule.burst
    if #value ~= 26 or form ~= 104 and form ~= 111 then return nil end
    local missing, part, last, window = u48(value, 2), u48(value, 8), u56(value, 14), u48(value, 21)
    if part >= window then return nil end
    if form == 111 then s.owes, most = true, owed_most(rule, most) end
    if window ~= rule.window then part, s.redated = 0, true end
    if last > now then last, s.redated = now, true end
    if s.redated then s.kept = {missing, part, last} end
    local lacked = missing
    if missing > most then missing, part = most, 0 end
    s.missing, s.part, s.last = missing, part, last -- @debt
    local came, rest = muldiv(now - last, rule.limit, rule.window)
    rest = rest + part
    if rest >= rule.window then came, rest = came + 1, rest - rule.window end
    s.used, s.back = missing - came, rest
    if s.used <= 0 then
      s.used, s.back = 0, 0
      if rule.missing > 0 and now >= last + regain(rule, missing, part) + NEW_AGAIN then
        s.used, s.new = rule.missing, true -- as if the key had expired
      end
    elseif lacked > rule.burst and not s.owes then
      s.debt = lacked - came -- for a burst that is raised again
    end
  else
    s.new = rule.missing > 0
  end
  bucket_outlook(s)
  return s
end

local bucket = small{decode = decode_bucket, step = take_bucket, later = bucket_after, encode = encode_bucket}

function bucket.prepare(rule, params)
  local burst, missing = string.match(params, '^(%d+),?(%d*)$')
  rule.burst, rule.missing = tonumber(burst), tonumber(missing) or 0
  rule.capacity = rule.burst
end

-- a bucket that does not begin full refills from its first charge on
function bucket.refuse(rule, k)
  local s = states[k]
  if s.new then s.kept, s.owes, redated[k] = nil, nil, true end
end

-- @debt
bucket.remembered = 60000000 -- us for which a bucket that debts left full is remembered, for others to add to

-- Takes tokens from the time of their use on, or from the last charge on if that is later.
function bucket.owe(s, n, at)
  local rule, most, back = s.rule, owed_most(s.rule, s.rule.burst), 0
  local function lacks(missing, part, us)
    local came, rest = muldiv(us, rule.limit, rule.window)
    rest = rest + part
    if rest >= rule.window then came, rest = came + 1, rest - rule.window end
    if missing <= came then return 0, 0 end
    return missing - came, rest
  end
  local missing, last = rule.missing, at
  if s.last and not s.new then
    if s.last > last then last = s.last end
    missing, back = lacks(s.missing, s.part, last - s.last)
  elseif missing > 0 and last < s.now - NEW_AGAIN then
    last = s.now - NEW_AGAIN
  end
  missing = missing + (n < most and n or most)
  if missing > most then missing, back = most, 0 end
  s.kept, s.owes, s.debt = {missing, back, last}, missing > rule.burst, nil
  s.used, s.back = lacks(missing, back, s.now - last)
  return true
end

-- @return
-- @needs bucketreturn.lua
bucket.returned = true

function bucket.give_back(value, r, now, remembered)
  local owes = byte(value, 1) == 111
  if #value ~= 26 or byte(value, 1) ~= 104 and not owes or not remembers(remembered) then return nil, WRONG_VALUE end
  local missing, part, last, window = u48(value, 2), u48(value, 8), u56(value, 14), u48(value, 21)
  if part >= window then return nil, WRONG_VALUE end
  if window ~= r.window or missing > r.burst and not owes or last > now or r.at > now then return 0 end
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
  return given, (missing > r.burst and 'o' or 'h') .. be48(missing) .. be48(part) .. be56(now) .. be48(window),
    regain(r, missing, part) + (r.missing > 0 and NEW_AGAIN or 0), memory
end
