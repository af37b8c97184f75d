-- The ban: bars a key after `limit` strikes within a window. The twin of core/ban.go.
--
-- value    'K':1  level:1  begins:7  limit:2  window:6  bar:6  longest:6  strike:7 …
-- level    how many bars followed each other; 0 if none is remembered
-- begins   when the last of them began, us
-- limit, window, bar, longest   the largest of the versions of the rule: the strikes within
--          that window are kept, and a bar is remembered, as long as one of them counts it
-- strike   the times of the strikes since then, us, oldest first
-- params   limit:2 window:6 bar:6 longest:6 of this version
--
-- @needs records.lua
-- @value K 29 7

local MAX_LEVEL = 40

local function length_of_bar(first, longest, level)
  local length = first
  for _ = 2, level do
    if length < longest then length = length * 2 end
  end
  return length < longest and length or longest
end

local function larger(a, b) return a > b and a or b end

-- when the last bar is forgotten
local function bar_forgotten(s) return s.begins + length_of_bar(s.bar, s.longest, s.level) + s.longest end

-- when the last bar ends for this version
local function bar_ends(s)
  local ends = s.begins + length_of_bar(s.rule.bar, s.rule.longest, s.level)
  return s.head == s.rule.head and ends or math.min(ends, bar_forgotten(s))
end

-- when the key is new again
local function ban_expires(s)
  local at, size = s.level > 0 and bar_forgotten(s) or 0, #s.strikes
  return size > 0 and larger(at, u56(s.strikes, size - 6) + s.window) or at
end

-- the n oldest strikes that count must leave, or the bar must end
local function ban_after(s, n)
  local rule = s.rule
  if s.barred then return bar_ends(s) - s.now end
  local at = u56(s.strikes, (s.first + n - 1)*7 + 1) + rule.window
  if s.window < rule.window then at = math.min(at, ban_expires(s)) end
  return at - s.now
end

local function drop_strikes(s, n)
  if n > 0 then s.strikes = sub(s.strikes, n*7 + 1) end
end

-- finds what has left the window, and what that leaves
local function ban_outlook(s)
  local rule, strikes, now = s.rule, s.strikes, s.now
  local limit, size, left = rule.limit, #strikes / 7, 0
  s.barred = s.level > 0 and bar_ends(s) > now
  if size > 0 and u56(strikes, 1) <= now - rule.window then left = records_until(strikes, 7, now - rule.window) end
  if s.window < rule.window and ban_expires(s) <= now then left = size end
  s.left, s.first = left, larger(size - limit + 1, left) -- only a strike bars, not a lowered limit
  s.used = s.barred and limit or size - s.first
  s.room, s.more, s.reset = limit - s.used, 0, 0
  if s.used > 0 then s.more, s.reset = ban_after(s, 1), ban_after(s, s.used) end
end

-- @rare
local function widen_ban(s)
  local rule = s.rule
  s.limit, s.window = larger(s.limit, rule.limit), larger(s.window, rule.window)
  s.bar, s.longest = larger(s.bar, rule.bar), larger(s.longest, rule.longest)
  s.head = sub(be24(s.limit), 2) .. be48(s.window) .. be48(s.bar) .. be48(s.longest)
end

local function forget_bar(s, at)
  if s.level > 0 and bar_forgotten(s) <= at then s.level, s.begins = 0, 0 end
end

-- remembers the version, and forgets the last bar if none did at a time. Of a key that is
-- new again, it keeps only strikes that counted then.
local function keep_strikes(s, at)
  local other = s.head ~= s.rule.head
  local is_new = (other or s.left * 7 == #s.strikes) and ban_expires(s) <= s.now
  forget_bar(s, at)
  if is_new then
    drop_strikes(s, records_until(s.strikes, 7, at - s.window))
    if other then s.limit, s.window, s.bar, s.longest = 0, 0, 0, 0 end
  end
  if other then widen_ban(s) end
end

local function begin_bar(s, at)
  s.level, s.begins = s.level < MAX_LEVEL and s.level + 1 or MAX_LEVEL, at
  drop_strikes(s, records_until(s.strikes, 7, bar_ends(s) - 1))
end

local function take_strikes(s, n)
  keep_strikes(s, s.now)
  if s.used + n >= s.rule.limit then
    begin_bar(s, s.now)
  else
    drop_strikes(s, larger(s.window == s.rule.window and s.left or records_until(s.strikes, 7, s.now - s.window), #s.strikes / 7 + n - s.limit))
    s.strikes = s.strikes .. rep(be56(s.now), n)
  end
  ban_outlook(s)
end

local function encode_ban(s)
  return 'K' .. char(s.level) .. be56(s.begins) .. s.head .. s.strikes, larger(0, ban_expires(s) - s.now)
end

local function is_ban(value)
  return #value >= 29 and (#value - 29) % 7 == 0 and byte(value, 1) == 75 and byte(value, 2) <= MAX_LEVEL
end

local function decode_ban(value, rule, now)
  local s = {rule = rule, now = now, level = 0, begins = 0, strikes = '', limit = 0, window = 0, bar = 0, longest = 0, head = ''}
  if value then
    if not is_ban(value) then return nil end
    local strikes, head = sub(value, 30), sub(value, 10, 29)
    s.level, s.strikes, s.head = byte(value, 2), strikes, head
    if s.level > 0 then s.begins = u56(value, 3) end
    if head == rule.head then
      s.limit, s.window, s.bar, s.longest = rule.limit, rule.window, rule.bar, rule.longest
    else
      s.limit, s.window, s.bar, s.longest = byte(head, 1)*256 + byte(head, 2), u48(head, 3), u48(head, 9), u48(head, 15)
    end
    if s.level > 0 and s.begins > now then s.begins, s.redated = now, true end
    if strikes ~= '' and u56(strikes, #strikes - 6) > now then
      local upto = records_until(strikes, 7, now)
      s.strikes, s.redated = sub(strikes, 1, upto*7) .. rep_many(be56(now), #strikes / 7 - upto), true
    end
  end
  ban_outlook(s)
  if s.redated then
    keep_strikes(s, now)
    -- a bar that is in force again came before them
    drop_strikes(s, s.level > 0 and bar_ends(s) > now and #s.strikes / 7 or records_until(s.strikes, 7, now - s.window))
    ban_outlook(s)
  end
  return s
end

local ban = small{decode = decode_ban, step = take_strikes, later = ban_after, encode = encode_ban}
algorithms[8] = ban

function ban.prepare(rule, params)
  rule.head, rule.bar, rule.longest, rule.bars = params, u48(params, 9), u48(params, 15), true
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
  if s.level > 0 and at < bar_ends(s) then return false end
  keep_strikes(s, at)
  local rule, i = s.rule, records_until(s.strikes, 7, at)
  local strikes = sub(s.strikes, 1, 7*i) .. rep(be56(at), math.min(n, rule.limit)) .. sub(s.strikes, 7*i + 1)
  s.strikes = strikes
  for j = 7*i + 1, #strikes, 7 do
    local first, last = j - 7*(rule.limit - 1), u56(strikes, j)
    if first > 0 and last - u56(strikes, first) < rule.window then
      forget_bar(s, last)
      begin_bar(s, last)
      return true
    end
  end
  forget_bar(s, s.now)
  drop_strikes(s, larger(records_until(strikes, 7, at - s.window), rule.window < s.window and #strikes / 7 - s.limit or 0))
  return true
end

-- @return
-- Gives back the strikes of a time, as long as they have not barred the key.
function ban.give_back(value, r, now)
  if not is_ban(value) then return nil, WRONG_VALUE end
  local window = u48(value, 12)
  if r.at > now or now - r.at >= window then return 0 end
  local strikes = sub(value, 30)
  local first = records_until(strikes, 7, r.at - 1)
  local given = math.min(r.cost, records_until(strikes, 7, r.at) - first)
  strikes = sub(strikes, 1, first*7) .. sub(strikes, (first + given)*7 + 1)
  if given == 0 or strikes == '' and byte(value, 2) == 0 then return given, '' end
  return given, sub(value, 1, 29) .. strikes, window
end
