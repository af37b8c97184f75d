-- The ban: bars a key after `limit` strikes within a window. The twin of core/ban.go.
--
-- value    'k':1  level:1  ends:7  strike:7 …
-- level    how many bars followed each other; 0 if none is remembered
-- ends     when the last of them ends, us
-- strike   the times of the strikes since then, us, oldest first
-- params   us of the first bar, and of the longest or 0
--
-- @needs records.lua
-- @value k 9 7

local MAX_LEVEL = 40

local function length_of_bar(rule, level)
  local length = rule.bar
  for _ = 2, level do
    if length < rule.longest then length = length * 2 end
  end
  return length < rule.longest and length or rule.longest
end

-- the n oldest strikes that count must leave, or the bar must end
local function ban_after(s, n)
  if s.barred then return s.ends - s.now end
  return u56(s.strikes, (s.first + n - 1)*7 + 1) + s.rule.window - s.now
end

local function ban_outlook(s)
  local limit, size = s.rule.limit, #s.strikes / 7
  s.barred = s.level > 0 and s.ends > s.now
  s.first = size - limit + 1 -- only a strike bars, not a lowered limit
  if s.first < s.left then s.first = s.left end
  s.used = s.barred and limit or size - s.first
  s.room, s.more, s.reset = limit - s.used, 0, 0
  if s.used > 0 then s.more, s.reset = ban_after(s, 1), ban_after(s, s.used) end
end

local function take_strikes(s, n)
  local rule = s.rule
  if s.now - s.ends >= rule.longest then s.level, s.ends = 0, 0 end
  if s.used + n >= rule.limit then
    s.level = s.level < MAX_LEVEL and s.level + 1 or MAX_LEVEL
    s.ends, s.strikes = s.now + length_of_bar(rule, s.level), ''
  else
    s.strikes = sub(s.strikes, s.left*7 + 1) .. rep(be56(s.now), n)
  end
  s.left = 0
  ban_outlook(s)
end

local function encode_ban(s)
  local life, size = s.level > 0 and s.ends + s.rule.longest - s.now or 0, #s.strikes
  local last = size > 0 and u56(s.strikes, size - 6) + s.rule.window - s.now or 0
  return 'k' .. char(s.level) .. be56(s.ends) .. s.strikes, last > life and last or life
end

local function is_ban(value)
  return #value >= 9 and (#value - 9) % 7 == 0 and byte(value, 1) == 107 and byte(value, 2) <= MAX_LEVEL
end

local function decode_ban(value, rule, now)
  local s = {rule = rule, now = now, level = 0, ends = 0, strikes = '', left = 0}
  if value then
    if not is_ban(value) then return nil end
    s.level, s.ends, s.strikes = byte(value, 2), u56(value, 3), sub(value, 10)
    local latest, size, upto = now + length_of_bar(rule, s.level), #s.strikes / 7, nil
    if s.level > 0 and s.ends > latest then s.ends, s.redated = latest, true end
    upto = records_until(s.strikes, 7, now)
    if upto < size then s.strikes, s.redated = sub(s.strikes, 1, upto*7) .. rep_many(be56(now), size - upto), true end
    s.left = records_until(s.strikes, 7, now - rule.window)
    if s.redated then
      -- a bar that is in force again came before them
      s.strikes, s.left = s.level > 0 and s.ends > now and '' or sub(s.strikes, s.left*7 + 1), 0
    end
  end
  ban_outlook(s)
  return s
end

local ban = small{decode = decode_ban, step = take_strikes, later = ban_after, encode = encode_ban}
algorithms[8] = ban

function ban.prepare(rule, params)
  local bar, longest = string.match(params, '^(%d+),(%d+)$')
  rule.bar, rule.longest, rule.bars = tonumber(bar), tonumber(longest), true
  if rule.longest < rule.bar then rule.longest = rule.bar end
end

-- a barred key refuses even what costs nothing
function ban.need(rule, k, cost, at) needs[k] = cost > 0 and cost or 1 end

function ban.refuse(rule, k, barred)
  if not barred then take_small(rule, k, 1) end
end

-- @debt
-- Takes strikes of a time, unless a bar ended since. If they, or one behind them, would
-- have been enough for a bar, it began then.
function ban.owe(s, n, at)
  if s.level > 0 and at < s.ends then return false end
  local rule, i = s.rule, records_until(s.strikes, 7, at)
  local strikes = sub(s.strikes, 1, 7*i) .. rep(be56(at), math.min(n, rule.limit)) .. sub(s.strikes, 7*i + 1)
  s.strikes = sub(strikes, 7*records_until(strikes, 7, at - rule.window) + 1)
  for j = 7*i + 1, #strikes, 7 do
    local first, last = j - 7*(rule.limit - 1), u56(strikes, j)
    if first > 0 and last - u56(strikes, first) < rule.window then
      if last - s.ends >= rule.longest then s.level = 0 end
      s.level = s.level < MAX_LEVEL and s.level + 1 or MAX_LEVEL
      s.ends = last + length_of_bar(rule, s.level)
      s.strikes = sub(strikes, 7*records_until(strikes, 7, s.ends - 1) + 1)
      break
    end
  end
  return true
end

-- @return
-- Gives back the strikes of a time, as long as they have not barred the key.
function ban.give_back(value, r, now)
  if not is_ban(value) then return nil, WRONG_VALUE end
  if r.at > now or now - r.at >= r.window then return 0 end
  local strikes = sub(value, 10)
  local first = records_until(strikes, 7, r.at - 1)
  local given = math.min(r.cost, records_until(strikes, 7, r.at) - first)
  strikes = sub(strikes, 1, first*7) .. sub(strikes, (first + given)*7 + 1)
  if given == 0 or strikes == '' and byte(value, 2) == 0 then return given, '' end
  return given, sub(value, 1, 9) .. strikes, r.window
end
