-- The token bucket and the leaky bucket: `burst` tokens, refilled at `limit` a window.
-- The twin of core/tokenbucket.go.
--
-- value    form:1  missing:6  part:6  last:7  window:6  owed:6
-- form     'h', without owed, or 'm' if debts took more than the burst
-- missing  tokens, when last taken from, for a burst that is large enough
-- part     windowths of the last of them that were refilled
-- last     when that was, us
-- window   what part counts in, us
-- owed     of the missing, what debts took above the burst
-- params   the burst, and the tokens that a new bucket lacks, if any
--
-- The value is the truth for all versions of a rule. A version with a smaller burst never
-- lacks more than that, and what is owed, when the bucket was last taken from.
--
-- @needs small.lua
-- @value h 26
-- @value m 32

local NEW_AGAIN = 3600000000 -- how long a full bucket that did not begin full is remembered, us

-- us until n tokens are refilled, if `back` windowths of the first are there
local function regain(rule, n, back)
  local whole, rest = muldiv(n, rule.window, rule.limit)
  return whole + ceildiv(rest - back, rule.limit)
end

local function bucket_after(s, n) return regain(s.rule, n, s.back) end

local function bucket_outlook(s)
  local left = s.rule.burst - s.used
  s.room, s.more, s.reset = left, 0, 0
  if s.used > 0 then
    s.more = bucket_after(s, left < 0 and 1 - left or 1)
    s.reset = bucket_after(s, s.used)
  end
end

-- what is left of missing tokens after some us
-- @rare
local function refilled(rule, missing, back, us)
  local came, rest = muldiv(us, rule.limit, rule.window)
  rest = rest + back
  if rest >= rule.window then came, rest = came + 1, rest - rule.window end
  if missing <= came then return 0, 0 end
  return missing - came, rest
end

local function take_bucket(s, n)
  s.used, s.kept, s.owed = s.used + n, nil, nil
  if s.lacks then
    s.lacks = s.lacks + n
    s.used, s.back = s.lacks, s.rest
    if s.used > s.rule.burst then s.used, s.back = s.rule.burst, 0 end
  end
  bucket_outlook(s)
end

local function encode_bucket(s, last)
  local missing, part, window, form, owed = s.used, s.back, s.rule.window, 'h', ''
  if s.lacks then missing, part = s.lacks, s.rest end
  local life = regain(s.rule, missing, part)
  if life > 316224000000000 then life = 316224000000000 end -- ten years
  if s.kept then
    missing, part, window = s.kept[1], s.kept[2], s.kept[4]
    last = be56(s.kept[3])
  end
  if s.owed then
    form = 'm'
    owed = be48(s.owed)
  end
  return form .. be48(missing) .. be48(part) .. last .. be48(window) .. owed,
    life + (s.rule.missing > 0 and NEW_AGAIN or 0)
end

local function decode_bucket(value, rule, now)
  local s = {rule = rule, now = now, used = rule.missing, back = 0}
  if value then
    local form, most = byte(value, 1), rule.burst
    if #value ~= 26 or form ~= 104 then
      if #value ~= 32 or form ~= 109 then return nil end
      s.owed = u48(value, 27)
      most = math.min(most + s.owed, owed_most(rule, most))
    end
    local missing, part, last, window = u48(value, 2), u48(value, 8), u56(value, 14), u48(value, 21)
    if part >= window then return nil end
    if last > now then last, s.redated, s.kept = now, true, {missing, part, now, window} end
    if window ~= rule.window then part = muldiv(part, rule.window, window) end
    s.missing, s.part, s.last = missing, part, last -- @debt
    local lacked, back = missing, part
    if missing > rule.burst then -- for the larger burst of another version, or owed
      s.lacks, s.rest = refilled(rule, missing, part, now - last)
      if missing > most then lacked, back = most, 0 end
    end
    local came, rest = muldiv(now - last, rule.limit, rule.window)
    rest = rest + back
    if rest >= rule.window then came, rest = came + 1, rest - rule.window end
    s.used, s.back = lacked - came, rest
    if s.used <= 0 then
      s.used, s.back = 0, 0
      if rule.missing > 0 and now >= last + regain(rule, missing, part) + NEW_AGAIN then
        s.used, s.lacks, s.new = rule.missing, nil, true -- as if the key had expired
      end
    end
  else
    s.new = rule.missing > 0
  end
  bucket_outlook(s)
  return s
end

local bucket = small(decode_bucket, take_bucket, bucket_after, encode_bucket)

function bucket.prepare(rule, params)
  local burst, missing = string.match(params, '^(%d+),?(%d*)$')
  rule.burst, rule.missing = tonumber(burst), tonumber(missing) or 0
  rule.capacity = rule.burst -- @many
end

-- a bucket that does not begin full refills from its first charge on
function bucket.refuse(rule, k)
  local s = states[k]
  if s.new then s.kept, s.owed, redated[k] = nil, nil, true end
end

-- @debt
bucket.remembered = 60000000 -- us for which a bucket that debts left full is remembered, for others to add to

-- Takes tokens from the time of their use on, or from the last charge on if that is later.
-- What is above the burst is owed, and also what others admitted above it before. No more
-- than most are missing then, if it is given.
function bucket.owe(s, n, at, _, most)
  local rule, missing, back, admitted = s.rule, s.rule.missing, 0, s.rule.burst
  most = most or owed_most(rule, rule.burst)
  if s.last and at < s.last then at = s.last end
  if s.new and at < s.now - NEW_AGAIN then at = s.now - NEW_AGAIN end
  if s.last and not s.new then
    missing, back = refilled(rule, s.missing, s.part, at - s.last)
    admitted = math.max(admitted, math.min(missing, s.missing - (s.owed or 0)))
  end
  if n > most then n = most end
  if missing > most then most = missing end
  missing = missing + n
  if missing > most then missing, back = most, 0 end
  s.kept, s.owed = {missing, back, at, rule.window}, missing > admitted and missing - admitted or nil
  s.lacks, s.rest = refilled(rule, missing, back, s.now - at)
  return true
end

-- Owe of units of others: see add_units in tellers.lua.
function bucket.add_units(rule, value, now, n, stamp)
  if #value ~= 26 or byte(value, 1) ~= 104 or rule.missing > 0 then return nil end
  local most, missing, part, last = rule.burst, u48(value, 2), u48(value, 8), u56(value, 14)
  if u48(value, 21) ~= rule.window or part >= rule.window or last > now then return nil end
  local came, rest = muldiv(now - last, rule.limit, rule.window)
  part = part + rest
  if part >= rule.window then came, part = came + 1, part - rule.window end
  if missing > came then missing = missing - came else missing, part = 0, 0 end
  if missing > most then most = missing end
  missing = missing + n
  if missing > most then missing, part = most, 0 end
  return 'h' .. be48(missing) .. be48(part) .. stamp .. sub(value, 21), math.min(regain(rule, missing, part), 316224000000000)
end

-- @return
-- @needs bucketreturn.lua
bucket.returned = true

function bucket.give_back(value, r, now, remembered)
  local form = byte(value, 1)
  if (#value ~= 26 or form ~= 104) and (#value ~= 32 or form ~= 109) then return nil, WRONG_VALUE end
  local before = remembered and byte(remembered, 1)
  if remembered and (before ~= 103 or #remembered < 33 or #remembered % 19 ~= 14) and (before ~= 114 or #remembered ~= 141) then return nil, WRONG_VALUE end
  local missing = u48(value, 2)
  local part = u48(value, 8)
  local last = u56(value, 14)
  local window = u48(value, 21)
  if part >= window then return nil, WRONG_VALUE end
  if window ~= r.window or last > now or r.at > now then return 0 end
  if part > 0 then missing, part = missing - 1, window - part end -- as a level
  local units, rest = later(missing, part, r, now - last)
  if units == 0 and rest == 0 then return 0, '' end -- @settle
  if units == 0 and rest == 0 then return 0 end
  local given, back, memory, life = give(r, now, units, rest, remembered)
  if given == 0 and back == 0 then return 0 end
  missing, part = missing - given, part - back
  if part < 0 then missing, part = missing - 1, part + window end
  local came = back > 0 and given + 1 or given
  if given == units and back == rest and r.missing == 0 then return came, '', 0, true, memory, life end
  if part > 0 then missing, part = missing + 1, window - part end
  local lacks, behind = units - given, rest - back -- now, as a level
  if behind < 0 then lacks, behind = lacks - 1, behind + window end
  if behind > 0 then lacks, behind = lacks + 1, window - behind end
  local free, wait, full -- unless more are missing than this version ever lacks
  if lacks > 0 and missing <= r.burst then free, wait, full = r.burst - lacks, regain(r, 1, behind), regain(r, lacks, behind) end
  local matters = full or regain(r, missing, part) - (now - last)
  local owed = form == 109 and math.min(u48(value, 27), missing - r.burst) or 0
  return came, (owed > 0 and 'm' or 'h') .. be48(missing) .. be48(part) .. sub(value, 14, 26) .. (owed > 0 and be48(owed) or ''),
    math.min(matters, 316224000000000) + (r.missing > 0 and NEW_AGAIN or 0), false, memory, life, free, wait, full
end
