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

-- @rare
local function length_of_bar(first, longest, level)
  local length = first
  for _ = 2, level do
    if length < longest then length = length * 2 end
  end
  return length < longest and length or longest
end

-- @rare
-- finds when the last bar ends for this version, and when no version remembers it
local function date_bar(s)
  local rule, kept = s.rule, s.kept
  s.ends = s.begins + length_of_bar(rule.bar, rule.longest, s.level)
  s.forgotten = s.ends + rule.longest
  if kept ~= rule then
    s.forgotten = s.begins + length_of_bar(kept.bar, kept.longest, s.level) + kept.longest
    if s.forgotten < s.ends then s.ends = s.forgotten end
  end
end

-- when the key is new again
local function ban_expires(s)
  local at, size = s.forgotten, #s.strikes
  if size == 0 then return at end
  local left = u56(s.strikes, size - 6) + s.kept.window
  return left > at and left or at
end

-- the n oldest strikes that count must leave, or the bar must end
local function ban_after(s, n)
  local rule = s.rule
  if s.ends > s.now then return s.ends - s.now end
  local at = u56(s.strikes, #s.strikes - (rule.limit - s.room - n + 1)*7 + 1) + rule.window
  if s.kept.window < rule.window then at = math.min(at, ban_expires(s)) end
  return at - s.now
end

-- @rare
local function drop_strikes(s, n)
  if n > 0 then s.strikes = sub(s.strikes, n*7 + 1) end
end

-- finds what has left the window, and what that leaves
local function ban_outlook(s)
  local rule, strikes, now = s.rule, s.strikes, s.now
  local limit, size, left = rule.limit, #strikes / 7, 0
  if size > 0 then
    if u56(strikes, 1) <= now - rule.window then left = records_until(strikes, 7, now - rule.window) end
    if s.kept.window < rule.window and ban_expires(s) <= now then left = size end
  end
  s.left, s.room, s.more, s.reset = left, limit - size + left, 0, 0
  if s.room < 1 then s.room = 1 end -- only a strike bars, not a lowered limit
  if s.ends > now then
    s.room, s.more, s.reset = 0, s.ends - now, s.ends - now
  elseif s.room < limit then
    s.more = ban_after(s, 1)
    s.reset = ban_after(s, limit - s.room)
  end
end

-- @rare
local function forget_bar(s) s.level, s.begins, s.ends, s.forgotten = 0, 0, 0, 0 end

-- @rare
local function widen_ban(s, is_new)
  local rule, kept, most = s.rule, s.kept, math.max
  if is_new then
    kept = rule
  else
    kept = {limit = most(kept.limit, rule.limit), window = most(kept.window, rule.window), bar = most(kept.bar, rule.bar),
      longest = most(kept.longest, rule.longest)}
    kept.head = sub(be24(kept.limit), 2) .. sub(be56(kept.window), 2) .. sub(be56(kept.bar), 2) .. sub(be56(kept.longest), 2)
    if kept.head == rule.head then kept = rule end
  end
  s.kept = kept
  if s.level > 0 then date_bar(s) end
end

-- remembers the version, and forgets the last bar if none did at a time. Of a key that is
-- new again, it keeps only strikes that counted then.
local function keep_strikes(s, at)
  local other = s.kept ~= s.rule
  local is_new = (other or s.left * 7 == #s.strikes) and ban_expires(s) <= s.now
  if s.level > 0 and s.forgotten <= at then forget_bar(s) end
  if is_new then drop_strikes(s, records_until(s.strikes, 7, at - s.kept.window)) end
  if other then widen_ban(s, is_new) end
end

-- @rare
local function begin_bar(s, at)
  s.level, s.begins = s.level < MAX_LEVEL and s.level + 1 or MAX_LEVEL, at
  date_bar(s)
  drop_strikes(s, records_until(s.strikes, 7, s.ends - 1))
end

local function take_strikes(s, n)
  local rule = s.rule
  keep_strikes(s, s.now)
  if s.room <= n then
    begin_bar(s, s.now)
  else
    local kept = s.kept
    local left = kept.window == rule.window and s.left or records_until(s.strikes, 7, s.now - kept.window)
    s.strikes = sub(s.strikes, math.max(left, #s.strikes / 7 + n - kept.limit)*7 + 1) .. rep(be56(s.now), n)
  end
  ban_outlook(s)
end

local function encode_ban(s)
  return 'K' .. char(s.level) .. be56(s.begins) .. s.kept.head .. s.strikes, math.max(0, ban_expires(s) - s.now)
end

local function is_ban(value)
  return #value >= 29 and (#value - 29) % 7 == 0 and byte(value, 1) == 75 and byte(value, 2) <= MAX_LEVEL
end

local function decode_ban(value, rule, now)
  -- all fields, since a table that grows costs more than it
  local s = {rule = rule, kept = rule, now = now, level = 0, begins = 0, ends = 0, forgotten = 0, strikes = '', left = 0,
    room = rule.limit, more = 0, reset = 0}
  if not value then return s end
  if not is_ban(value) then return nil end
  local strikes, head = sub(value, 30), sub(value, 10, 29)
  if head ~= rule.head then
    s.kept = {limit = byte(head, 1)*256 + byte(head, 2), window = u48(head, 3), bar = u48(head, 9), longest = u48(head, 15), head = head}
  end
  s.strikes, s.level = strikes, byte(value, 2)
  if s.level > 0 then
    s.begins = u56(value, 3)
    if s.begins > now then s.begins, s.redated = now, true end
    date_bar(s)
  end
  if strikes ~= '' and u56(strikes, #strikes - 6) > now then
    local upto = records_until(strikes, 7, now)
    s.strikes, s.redated = sub(strikes, 1, upto*7) .. rep_many(be56(now), #strikes / 7 - upto), true
  end
  ban_outlook(s)
  if s.redated then
    keep_strikes(s, now)
    -- a bar that is in force again came before them
    drop_strikes(s, s.ends > now and #s.strikes / 7 or records_until(s.strikes, 7, now - s.kept.window))
    ban_outlook(s)
  end
  return s
end

local ban = small(decode_ban, take_strikes, ban_after, encode_ban)
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
  if at < s.ends then return false end
  keep_strikes(s, at)
  local rule, i = s.rule, records_until(s.strikes, 7, at)
  local strikes = sub(s.strikes, 1, 7*i) .. rep(be56(at), math.min(n, rule.limit)) .. sub(s.strikes, 7*i + 1)
  s.strikes = strikes
  for j = 7*i + 1, #strikes, 7 do
    local first, last = j - 7*(rule.limit - 1), u56(strikes, j)
    if first > 0 and last - u56(strikes, first) < rule.window then
      if s.forgotten <= last then forget_bar(s) end
      begin_bar(s, last)
      return true
    end
  end
  if s.forgotten <= s.now then forget_bar(s) end
  drop_strikes(s, math.max(records_until(strikes, 7, at - s.kept.window), rule.window < s.kept.window and #strikes / 7 - s.kept.limit or 0))
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
