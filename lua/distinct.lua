-- Distinct values: at most `limit` different ones in any window. The twin of
-- core/distinct.go.
--
-- value    'l':1  at:7 …  again:1 id:8 …     in the order in which they were last shown
-- at       when each value was last shown, us
-- again    1 if it was in the window already
-- id       8 bytes, since doubles hold 53 bits
-- params   the ids of the requests, in their order; if these have several asks, the ids of
--          all their charges
--
-- Nothing loops over the values: string.find finds an id, and times are bisected.
--
-- @needs records.lua
-- @value l 17 16

local NO_VALUE = rep('\0', 8)

-- where an id is in ids, behind so many of them, or nil
local function find_id(ids, id, left)
  local i = left*9
  repeat
    i = string.find(ids, id, i + 1, true)
  until not i or i % 9 == 2 -- otherwise the bytes of two fields
  return i
end

-- the times and the ids without the one that find_id found
local function without(times, ids, i)
  local at = (i - 2) / 9 * 7
  return sub(times, 1, at) .. sub(times, at + 8), sub(ids, 1, i - 2) .. sub(ids, i + 8)
end

-- the n oldest values must leave
local function values_after(s, n)
  return u56(s.times, (s.left + n - 1)*7 + 1) + s.rule.window - s.now
end

local function values_outlook(s)
  s.used = #s.times / 7 - s.left
  s.room, s.more, s.reset = s.rule.limit - s.used, 0, 0
  if s.used > 0 then s.more, s.reset = values_after(s, s.room < 0 and 1 - s.room or 1), values_after(s, s.used) end
end

local function drop_left(s)
  if s.left > 0 then s.times, s.ids, s.left = sub(s.times, s.left*7 + 1), sub(s.ids, s.left*9 + 1), 0 end
end

local function show_value(s)
  drop_left(s)
  local i, again = find_id(s.ids, s.id, 0), '\0'
  if i then
    again = '\1'
    s.times, s.ids = without(s.times, s.ids, i)
  end
  s.times, s.ids = s.times .. be56(s.now), s.ids .. again .. s.id
  values_outlook(s)
end

local function encode_values(s)
  return 'l' .. s.times .. s.ids, u56(s.times, #s.times - 6) + s.rule.window - s.now
end

-- the times and the ids of a value, or nil if no script wrote it
local function columns(value)
  local size = #value - 1
  if size < 16 or size % 16 ~= 0 or byte(value, 1) ~= 108 then return nil end
  return sub(value, 2, 1 + size / 16 * 7), sub(value, 2 + size / 16 * 7)
end

local function decode_values(value, rule, now)
  local s = {rule = rule, now = now, times = '', ids = '', left = 0}
  if value then
    s.times, s.ids = columns(value)
    if not s.times then return nil end
    local size, upto = #s.times / 7, records_until(s.times, 7, now)
    if upto < size then s.times, s.redated = sub(s.times, 1, upto*7) .. rep_many(be56(now), size - upto), true end
    s.left = records_until(s.times, 7, now - rule.window)
    if s.redated then drop_left(s) end
  end
  values_outlook(s)
  return s
end

local distinct = small{decode = decode_values, step = show_value, later = values_after, encode = encode_values}
algorithms[9] = distinct

function distinct.prepare(rule, params) rule.ids = params end

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

-- @return
-- Gives back a value that was new at the time of the admission, and has not been
-- shown since.
function distinct.give_back(value, r, now)
  local times, ids = columns(value)
  if not times then return nil, WRONG_VALUE end
  if r.cost == 0 or r.at > now or now - r.at >= r.window then return 0 end
  local i = find_id(ids, r.ids, 0)
  if not i or u56(times, (i - 2) / 9 * 7 + 1) ~= r.at or byte(ids, i - 1) ~= 0 then return 0 end
  times, ids = without(times, ids, i)
  if times == '' then return 1, '' end
  return 1, 'l' .. times .. ids, u56(times, #times - 6) + r.window - now
end
