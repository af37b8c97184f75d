-- The sliding log: at most `limit` units in any window, exactly. The twin of
-- core/slidinglog.go, in one string, for limits up to 128; above, ring.lua keeps
-- the same log in place.
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

-- the times of the live units of a value in any form, oldest first, those ahead
-- of now dated now; the second result says whether there were any. This is the
-- slow way: for a clock that stepped back, and for a rule that was changed.
local function times_of(value, window, now)
  local form = byte(value, 1)
  if #value < 12 or form < SHORT or form > RING_LONG then return nil end
  local width, modulus, read = 4, 4294967296, u32
  if form == LONG or form == RING_LONG then width, modulus, read = 6, 281474976710656, u48 end
  local first, last, size, start, newest = 9, (#value - 8) / width, nil, 0, nil
  if form == SHORT or form == LONG then
    if last % 1 ~= 0 then return nil end
    newest = u56(value, 2)
  else
    if #value < 30 then return nil end
    size, last, newest = u24(value, 2), u24(value, 14), u56(value, 24)
    if last > size then return nil end
    first, start = 31, u24(value, 11) - last
  end
  local times, ahead = {}, false
  for j = 0, last - 1 do
    local i = first + (size and (start + j) % size or j) * width
    if i + width - 1 > #value then return nil end
    local t = newest - (newest - read(value, i)) % modulus
    if t > now then t, ahead = now, true end
    if now - t < window then times[#times + 1] = t end
  end
  return times, ahead
end

local function ticks_in(times, width)
  local out = {}
  for j = 1, #times do out[j] = sub(be56(times[j]), 8 - width) end
  return table.concat(out)
end

local log = {}
local values, firsts = {}, {} -- the value, and where its first live tick is

function log.load(rule, now)
  local limit, window, width, modulus, read = rule.limit, rule.window, rule.width, rule.modulus, rule.read
  local form, before = rule.short and SHORT or LONG, rule.first - 1
  local got = values_of(rule)
  for q = 1, rule.last - before do
    local k, value, i, live, soonest, latest = before + q, got[q], 1, 0, 0, 0
    if value then
      local kind, a, b, c, d, e, f, g = byte(value, 1, 8)
      local newest = g and (((((a*256 + b)*256 + c)*256 + d)*256 + e)*256 + f)*256 + g
      if kind ~= form or #value < 12 or (#value - 8) % width ~= 0 or newest > now then
        local times, ahead = times_of(value, window, now)
        if times then
          newest = times[#times] or 0
          value = char(form) .. be56(newest) .. ticks_in(times, width)
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
end

-- units taken now leave last
function log.take(rule, k, n)
  room[k], taken[k], reset[k] = room[k] - n, taken[k] + n, rule.window
  if more[k] == 0 then more[k] = rule.window end
end

-- the n oldest units must leave
function log.after(rule, k, n, now)
  local value, i = values[k], firsts[k] + (n - 1)*rule.width
  if i > #value then return rule.window end -- one that was taken by this call
  local newest = u56(value, 2)
  return rule.window - (now - newest) - (newest - rule.read(value, i)) % rule.modulus
end

function log.save(rule, now, stamp, grace)
  local ttl = tostring(ceil(rule.window / 1000) + grace) -- as text once: Redis is slow at writing numbers
  local head, tick = char(rule.short and SHORT or LONG) .. stamp, sub(stamp, 8 - rule.width)
  for k = rule.first, rule.last do
    local n = taken[k]
    if (n > 0 or redated[k]) and not problem[k] then
      call('PSETEX', keys[k], ttl, head .. sub(values[k], firsts[k]) .. (n == 1 and tick or rep(tick, n)))
    end
  end
end

algorithms[0] = log

-- @return
-- Gives back the units of a time, from a log in one string or in a ring. Units
-- ahead of now stay as they are: the next decision dates them now.
function log.give_back(value, r, now)
  local times = times_of(value, 18014398509481984, 9007199254740992) -- all, whatever their window
  if not times then return nil, WRONG_VALUE end
  if r.at > now or now - r.at >= r.window then return 0 end
  local kept, given = {}, 0
  for j = 1, #times do
    if times[j] == r.at and given < r.cost then given = given + 1 else kept[#kept + 1] = times[j] end
  end
  if given == 0 or #kept == 0 then return given, '' end
  local form, newest = byte(value, 1), be56(kept[#kept])
  if form == SHORT or form == LONG then
    return given, char(form) .. newest .. ticks_in(kept, form == SHORT and 4 or 6), r.window
  end
  return given, sub(value, 1, 10) .. be24(#kept % u24(value, 2)) .. be24(#kept) .. be56(kept[1]) .. newest ..
    ticks_in(kept, form == RING_SHORT and 4 or 6), 2*r.window
end
