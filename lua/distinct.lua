-- Distinct values: at most `limit` different ones in any window. The twin of
-- core/distinct.go.
--
-- value    'L':1  limit:2  window:6  at:7 …  again:1 id:8 …     in the order in which they were last shown
-- limit, window   the largest and the longest of the versions of the rule, us: of the values
--          within that window, as many of the newest are kept
-- at       when each value was last shown, us
-- again    1 if it was in the longest window already
-- id       8 bytes, since doubles hold 53 bits
-- params   limit:2 and window:6 of this version, and the ids of the requests, in their order; if these have several asks, the ids of
--          all their charges
--
-- Nothing loops over the values: string.find finds an id, and times are bisected.
--
-- @needs records.lua
-- @value L 25 16

local NO_VALUE = rep('\0', 8)

-- where an id is in ids, behind so many of them, or nil
local function find_id(ids, id, left)
  local i = left*9
  repeat
    i = string.find(ids, id, i + 1, true)
  until not i or i % 9 == 2 -- otherwise the bytes of two fields
  return i
end

-- @rare
-- the times and the ids without the one that find_id found
local function without(times, ids, i)
  local at = (i - 2) / 9 * 7
  return sub(times, 1, at) .. sub(times, at + 8), sub(ids, 1, i - 2) .. sub(ids, i + 8)
end

-- the n oldest values must leave, or the key must be new again
local function values_after(s, n)
  local rule, kept = s.rule, s.kept
  local at = u56(s.times, (s.left + n - 1)*7 + 1) + rule.window
  if kept ~= rule and kept.window < rule.window then at = math.min(at, u56(s.times, #s.times - 6) + kept.window) end
  return at - s.now
end

-- finds what has left the window, and what that leaves
local function values_outlook(s)
  local times, limit, since = s.times, s.rule.limit, s.now - s.rule.window
  local left = times ~= '' and u56(times, 1) <= since and records_until(times, 7, since) or 0
  local used = #times / 7 - left
  s.left, s.room, s.more, s.reset = left, limit - used, 0, 0
  if used > 0 then
    s.more = values_after(s, used > limit and 1 + used - limit or 1)
    s.reset = values_after(s, used)
  end
end

-- @rare
local function drop_values(s, n)
  s.times, s.ids = sub(s.times, n*7 + 1), sub(s.ids, n*9 + 1)
end

-- @rare
local function widen_values(s)
  local rule = s.rule
  local limit = math.max(s.kept.limit, rule.limit)
  local window = math.max(s.kept.window, rule.window)
  local head = sub(be24(limit), 2) .. sub(be56(window), 2)
  s.kept = head == rule.head and rule or {limit = limit, window = window, head = head}
end

-- remembers the version, and drops the values that none counts any more
local function keep_values(s)
  local rule, left = s.rule, s.left
  if s.kept ~= rule then
    widen_values(s)
    left = records_until(s.times, 7, s.now - s.kept.window)
  end
  if left > 0 then drop_values(s, left) end
end

-- shows a value at a time
local function put_value(s, id, at)
  keep_values(s)
  local i, again = find_id(s.ids, id, 0), '\0'
  if i then
    local before = u56(s.times, (i - 2) / 9 * 7 + 1)
    again, at = '\1', before > at and before or at
    s.times, s.ids = without(s.times, s.ids, i)
  end
  if at == s.now then
    s.times, s.ids = s.times .. be56(at), s.ids .. again .. id
  else
    local behind = records_until(s.times, 7, at)
    s.times = sub(s.times, 1, 7*behind) .. be56(at) .. sub(s.times, 7*behind + 1)
    s.ids = sub(s.ids, 1, 9*behind) .. again .. id .. sub(s.ids, 9*behind + 1)
  end
  if #s.times > 7*s.kept.limit then drop_values(s, #s.times / 7 - s.kept.limit) end
end

local function show_value(s)
  put_value(s, s.id, s.now)
  values_outlook(s)
end

local function encode_values(s)
  return 'L' .. s.kept.head .. s.times .. s.ids, u56(s.times, #s.times - 6) + s.kept.window - s.now
end

-- the times and the ids of a value, or nil if no script wrote it
local function columns(value)
  local size = #value - 9
  if size < 16 or size % 16 ~= 0 or byte(value, 1) ~= 76 then return nil end
  return sub(value, 10, 9 + size / 16 * 7), sub(value, 10 + size / 16 * 7)
end

local function decode_values(value, rule, now)
  -- all fields, since a table that grows takes longer
  local s = {rule = rule, kept = rule, now = now, times = '', ids = '', id = '', left = 0, room = rule.limit, more = 0, reset = 0}
  if value then
    local times, ids = columns(value)
    if not times then return nil end
    local newest, kept, head = u56(times, #times - 6), rule, sub(value, 2, 9)
    if head ~= rule.head then kept = {limit = byte(head, 1)*256 + byte(head, 2), window = u48(head, 3), head = head} end
    if kept.window == 0 then return nil end
    if newest > now then
      local upto = records_until(times, 7, now)
      times, newest, s.redated = sub(times, 1, upto*7) .. rep_many(be56(now), #times / 7 - upto), now, true
    end
    if newest + kept.window > now then -- or the key is new again
      s.times, s.ids, s.kept = times, ids, kept
    end
  end
  values_outlook(s)
  if s.redated then
    keep_values(s)
    values_outlook(s)
  end
  return s
end

local distinct = small(decode_values, show_value, values_after, encode_values)
algorithms[9] = distinct

function distinct.prepare(rule, params) rule.head, rule.ids = sub(params, 1, 8), sub(params, 9) end

function distinct.need(rule, k, cost, at)
  local s, i = states[k], (at - 2 - (at - 2) % rule.stride) / rule.stride * 8
  needs[k] = 0
  if s and cost > 0 then
    s.id = sub(rule.ids, i + 1, i + 8)
    if s.id ~= NO_VALUE and not find_id(s.ids, s.id, s.left) then needs[k] = 1 end
  end
end

function distinct.take(rule, k, n, at)
  if states[k].id ~= NO_VALUE then take_small(rule, k, n) end
end

-- @debt
-- Shows a value at a time, unless no version counts it any more.
function distinct.owe(s, n, at, id)
  if id == NO_VALUE or s.now - at >= math.max(s.rule.window, s.kept.window) then return false end
  put_value(s, id, at)
  return true
end

-- @return
-- Gives back a value that was new at the time of the admission, and has not been
-- shown since.
function distinct.give_back(value, r, now)
  local times, ids = columns(value)
  if not times then return nil, WRONG_VALUE end
  local window = u48(value, 4)
  if r.cost == 0 or r.at > now or now - r.at >= window then return 0 end
  local i = find_id(ids, sub(r.list, r.i + 28, r.i + 35), 0)
  if not i or u56(times, (i - 2) / 9 * 7 + 1) ~= r.at or byte(ids, i - 1) ~= 0 then return 0 end
  times, ids = without(times, ids, i)
  if times == '' then return 1, '' end
  return 1, sub(value, 1, 9) .. times .. ids, u56(times, #times - 6) + window - now
end
