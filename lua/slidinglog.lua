-- The sliding log: at most `limit` units in any window, exactly. The twin of
-- core/slidinglog.go, whole in one string, for limits up to 128; above, ring.lua
-- keeps the same log in place.
--
-- value   form:1  newest:7  tick:W …      one tick for each unit, oldest first
-- form    'a': W = 4, windows below 2^32 us (71.5 min);  'b': W = 6, the others
-- newest  the time of the newest unit, us
-- tick    the time of a unit modulo 2^(8W); newest is less than 2^(8W) later
--
-- Times are us since the epoch. decode and encode are pure.

-- how ticks are kept: forms of the log and of the ring, width, modulus, and the
-- functions that read and write them
local function short_ticks()
  return {form = 97, ring = 99, width = 4, modulus = 4294967296, read = u32, write = be32}
end
local function long_ticks()
  return {form = 98, ring = 100, width = 6, modulus = 281474976710656, read = u48, write = be48}
end

-- the times of the live units of a value in any form, oldest first, those ahead
-- of now dated now; the second result tells whether there were any. This is the
-- slow way: for a clock that stepped back, and for a rule that was changed.
local function times_of(value, window, now)
  local form = byte(value, 1)
  if not form or form < 97 or form > 100 then return nil end
  local ticks = form % 2 == 1 and short_ticks() or long_ticks()
  local first, last, size, start, newest = 9, (#value - 8) / ticks.width, nil, 0, nil
  if form == ticks.form then
    if last % 1 ~= 0 then return nil end
    newest = u56(value, 2)
  else
    if #value < 30 then return nil end
    size, last, newest = u24(value, 2), u24(value, 14), u56(value, 24)
    if last > size then return nil end
    first, start = 31, u24(value, 11) - last
  end
  local times, redated = {}, false
  for j = 0, last - 1 do
    local i = first + (size and (start + j) % size or j) * ticks.width
    if i + ticks.width - 1 > #value then return nil end
    local t = newest - (newest - ticks.read(value, i)) % ticks.modulus
    if t > now then t, redated = now, true end
    if now - t < window then times[#times + 1] = t end
  end
  return times, redated
end

local function ticks_in(times, ticks)
  local out = {}
  for j = 1, #times do out[j] = ticks.write(times[j] % ticks.modulus) end
  return table.concat(out)
end

local function take_log(s, n)
  local window = s.rule.window
  s.room, s.taken, s.reset = s.room - n, s.taken + n, window
  if s.more == 0 then s.more = window end
end

-- the n-th oldest unit must leave; those taken in this call come last
local function log_after(s, n)
  local rule, value = s.rule, s.value
  if n > s.live then return rule.window end
  local ticks, newest = rule.ticks, u56(value, 2)
  return rule.window - (rule.now - newest) - (newest - ticks.read(value, s.first + (n - 1)*ticks.width)) % ticks.modulus
end

local function save_log(s, key, stamp)
  local rule, n = s.rule, s.taken
  local tick = stamp[rule.ticks.width]
  call('SET', key, rule.head .. stamp.full .. sub(s.value, s.first) .. (n == 1 and tick or rep(tick, n)), 'PX', rule.life)
end

local function decode_log(value, rule, now)
  if not value then
    return {rule = rule, value = '', first = 1, live = 0, room = rule.limit, taken = 0, more = 0, reset = 0}
  end
  local ticks, window = rule.ticks, rule.window
  local len, width, read, redated = #value, ticks.width, ticks.read, false
  if len < 12 then return nil end
  local newest = u56(value, 2)
  if byte(value, 1) ~= ticks.form or newest > now then
    local times
    times, redated = times_of(value, window, now)
    if not times then return nil end
    newest = times[#times] or 0
    value = rule.head .. be56(newest) .. ticks_in(times, ticks)
    len = #value
  elseif (len - 8) % width ~= 0 then
    return nil
  end
  -- a unit is live while it is less than `span` older than the newest
  local span = window - (now - newest)
  local s = {rule = rule, value = '', first = 1, live = 0, room = rule.limit, taken = 0, more = 0, reset = 0}
  if span > 0 then
    local tick, modulus, first, age = newest % ticks.modulus, ticks.modulus, 9 - width, nil
    repeat
      first = first + width
      age = first < len and (tick - read(value, first)) % modulus or 0
    until age < span
    local live = (len - first + 1) / width
    s.value, s.first, s.live, s.room = value, first, live, rule.limit - live
    if live > 0 then s.more, s.reset = span - age, span end
    if live > rule.limit then s.more = log_after(s, 1 + live - rule.limit) end -- of a lowered limit
  end
  if redated then s.redated = true end
  return s
end
