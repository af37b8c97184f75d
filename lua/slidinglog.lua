-- The sliding log: at most `limit` units in any window, exactly. The twin of
-- core/slidinglog.go, in one string. With ring.lua, a log of a limit above 128 is
-- kept so only while it has few units.
--
-- value   form:1  newest:7  tick:W …      one tick for each unit, oldest first
-- form    'a': W = 4, windows below 2^32 us (71.5 min);  'b': W = 6, the others
-- newest  the time of the newest unit, us
-- tick    the time of a unit modulo 2^(8W); newest is less than 2^(8W) later
--
-- Times are us since the epoch.
--
-- @needs ring.lua above 128
-- @value a 12 4
-- @value b 14 6

local SHORT, LONG, RING_SHORT, RING_LONG = 97, 98, 99, 100 -- 'a' 'b' 'c' 'd'

-- how many of the ticks, oldest first, are of times up to `at`
local function count_until(ticks, width, newest, at)
  local modulus, read, low, high = 4294967296, u32, 0, #ticks / width
  if width == 6 then modulus, read = 281474976710656, u48 end
  while low < high do
    local middle = (low + high - (low + high) % 2) / 2
    if newest - (newest - read(ticks, middle*width + 1)) % modulus <= at then low = middle + 1 else high = middle end
  end
  return low
end

-- the time of the first or the last of the ticks, or 0 if there are none
local function end_of(ticks, width, newest, last)
  if ticks == '' then return 0 end
  local i = last and #ticks - width + 1 or 1
  if width == 4 then return newest - (newest - u32(ticks, i)) % 4294967296 end
  return newest - (newest - u48(ticks, i)) % 281474976710656
end

-- @rare
-- the ticks of a value in any form, oldest first, how wide they are, and the time
-- of the newest
local function ticks_of(value)
  local form = byte(value, 1)
  if #value < 12 or form < SHORT or form > RING_LONG then return nil end
  local width = (form == SHORT or form == RING_SHORT) and 4 or 6
  if form == SHORT or form == LONG then
    if (#value - 8) % width ~= 0 then return nil end
    return sub(value, 9), width, u56(value, 2)
  end
  if #value < 30 then return nil end
  local size, cursor, live = u24(value, 2), u24(value, 11), u24(value, 14)
  if live > size or cursor >= size then return nil end
  local from, ticks = cursor - live, nil
  if from >= 0 then
    ticks = sub(value, 31 + from*width, 30 + cursor*width)
  else
    ticks = sub(value, 31 + (from + size)*width, 30 + size*width) .. sub(value, 31, 30 + cursor*width)
  end
  if #ticks ~= live*width then return nil end
  return ticks, width, u56(value, 24)
end

-- @rare
-- ticks of the other width. In 4 bytes, times have at most two values of the bytes
-- above.
local function widened(ticks, width, newest)
  if width == 4 then return (string.gsub(ticks, '..(....)', '%1')) end
  local high = (newest - newest % 4294967296) / 4294967296
  local older = count_until(ticks, 4, newest, high*4294967296 - 1) * 4
  local function prefixed(part, n) return (string.gsub(part, '....', string.gsub(sub(be56(n), 6), '%%', '%%%%') .. '%0')) end
  return prefixed(sub(ticks, 1, older), high - 1) .. prefixed(sub(ticks, older + 1), high)
end

-- @rare
-- the live units of a value in any form, as ticks of a width, those ahead of now
-- dated now; the time of the newest; and whether any was ahead. This is for a clock
-- that stepped back, and for a rule that was changed. It copies and searches, since
-- a loop over all units would hold Redis for long.
local function live_ticks(value, rule, now)
  local ticks, old, newest = ticks_of(value)
  if not ticks then return nil end
  local first, last, width = count_until(ticks, old, newest, now - rule.window), #ticks / old, rule.short and 4 or 6
  local upto = newest > now and count_until(ticks, old, newest, now) or last
  ticks = sub(ticks, first*old + 1, upto*old)
  newest = end_of(ticks, old, newest, true)
  if width ~= old and ticks ~= '' then ticks = widened(ticks, width, newest) end
  if upto == last then return ticks, newest, false end
  return ticks .. rep_many(sub(be56(now), 8 - width), last - upto), now, true
end

local log = {}
local values, firsts = {nil, nil, nil, nil}, {nil, nil, nil, nil} -- the value, and where its first live tick is

-- fills in the row of a key from its value, or from nil
local function load_value(rule, now, k, value, form, width, modulus, read)
  local limit, window, i, live, soonest, latest = rule.limit, rule.window, 1, 0, 0, 0
  if value then
    local kind, a, b, c, d, e, f, g = byte(value, 1, 8)
    local newest = g and (((((a*256 + b)*256 + c)*256 + d)*256 + e)*256 + f)*256 + g
    if kind ~= form or #value < 12 or (#value - 8) % width ~= 0 or newest > now then
      local ticks, latest_tick, ahead = live_ticks(value, rule, now)
      if ticks then
        newest = latest_tick
        value = char(form) .. be56(newest) .. ticks
        if ahead then redated[k] = true end
      else
        newest, problem[k] = 0, WRONG_VALUE
      end
    end
    -- a unit is live while it is less than `span` older than the newest
    local span = window - (now - newest)
    if span > 0 then
      local tick, age = newest % modulus, nil
      i = 9 - width
      repeat
        i = i + width
        if i == 9 + 8*width then i = 9 + count_until(sub(value, 9), width, newest, newest - span)*width end
        age = i < #value and (tick - read(value, i)) % modulus or 0
      until age < span
      live = (#value - i + 1) / width
      if live > 0 then soonest, latest = span - age, span end
    else
      value = ''
    end
  else
    value = ''
  end
  values[k], firsts[k], room[k], taken[k], more[k], reset[k] = value, i, limit - live, 0, soonest, latest
  if live > limit then more[k] = log.after(rule, k, 1 + live - limit, now) end
end

function log.load(rule, now)
  local form, width, modulus, read, before = SHORT, 4, 4294967296, u32, rule.first - 1
  if not rule.short then form, width, modulus, read = LONG, 6, 281474976710656, u48 end
  local got = values_of(rule)
  for q = 1, rule.last - before do
    local k, value = before + q, got[q]
    load_value(rule, now, k, value, form, width, modulus, read) -- @inline
  end
end

-- units taken now leave last
function log.take(rule, k, n)
  room[k], taken[k], reset[k] = room[k] - n, taken[k] + n, rule.window
  if more[k] == 0 then more[k] = rule.window end
end

-- @rare
-- the n oldest units must leave
function log.after(rule, k, n, now)
  local width, modulus, read = 4, 4294967296, u32
  if not rule.short then width, modulus, read = 6, 281474976710656, u48 end
  local value, i = values[k], firsts[k] + (n - 1)*width
  if i > #value then return rule.window end -- one that was taken by this call
  local newest = u56(value, 2)
  return rule.window - (now - newest) - (newest - read(value, i)) % modulus
end

function log.save(rule, now, stamp, grace)
  local ttl = tostring(ceil(rule.window / 1000) + grace) -- as text once: Redis is slow at writing numbers
  local head, tick = char(rule.short and SHORT or LONG) .. stamp, rule.short and sub(stamp, 4) or sub(stamp, 2)
  for k = rule.first, rule.last do
    local n = taken[k]
    if (n > 0 or redated[k]) and not problem[k] then
      call('PSETEX', keys[k], ttl, head .. sub(values[k], firsts[k]) .. (n == 1 and tick or rep(tick, n)))
    end
  end
end

algorithms[0] = log

-- @debt
local function show_log(rule, value, now)
  local form, width, modulus, read = SHORT, 4, 4294967296, u32
  if not rule.short then form, width, modulus, read = LONG, 6, 281474976710656, u48 end
  load_value(rule, now, 1, value, form, width, modulus, read)
  return {room = room[1], more = more[1], reset = reset[1]}
end

-- Takes units that were used at a time, and keeps the newest `limit` of all. Rings become
-- strings. For the rest see debts.lua.
function log.charge(rule, value, now, n, at)
  local ticks, newest, redates, width = '', 0, false, rule.short and 4 or 6
  if value then
    ticks, newest, redates = live_ticks(value, rule, now)
    if not ticks then return nil, WRONG_VALUE end
  end
  if n > 0 and now - at < rule.window then
    local i = count_until(ticks, width, newest, at) * width
    newest = math.max(newest, at)
    ticks = sub(ticks, 1, i) .. rep_many(sub(be56(at), 8 - width), math.min(n, rule.limit)) .. sub(ticks, i + 1)
    ticks = sub(ticks, math.max(1, #ticks - rule.limit*width + 1))
  elseif not redates then
    return show_log(rule, value, now)
  end
  value = char(rule.short and SHORT or LONG) .. be56(newest) .. ticks
  return show_log(rule, value, now), value, rule.window
end

-- @return
-- Gives back the units of a time, from a log in one string or in a ring. Units
-- ahead of now stay as they are: the next decision dates them now.
function log.give_back(value, r, now)
  local ticks, width, newest = ticks_of(value)
  if not ticks then return nil, WRONG_VALUE end
  if r.at > now or now - r.at >= r.window then return 0 end
  local first = count_until(ticks, width, newest, r.at - 1)
  local given = math.min(r.cost, count_until(ticks, width, newest, r.at) - first)
  ticks = sub(ticks, 1, first*width) .. sub(ticks, (first + given)*width + 1)
  if given == 0 or ticks == '' then return given, '' end
  local form, last = byte(value, 1), be56(end_of(ticks, width, newest, true))
  if form == SHORT or form == LONG then return given, char(form) .. last .. ticks, r.window end
  local live = #ticks / width
  return given, sub(value, 1, 10) .. be24(live % u24(value, 2)) .. be24(live) ..
    be56(end_of(ticks, width, newest)) .. last .. ticks, 2*r.window
end
