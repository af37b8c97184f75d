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

local log = {}

function log.decode(value, rule, now)
  local ticks, window = rule.ticks, rule.window
  local s = {rule = rule, now = now, value = '', first = 1, live = 0, newest = 0}
  if value then
    local len = #value
    if len < 9 + 3 then return nil end
    local redated = false
    if byte(value, 1) ~= ticks.form or u56(value, 2) > now then
      local times
      times, redated = times_of(value, window, now)
      if not times then return nil end
      value = char(ticks.form) .. be56(times[#times] or 0) .. ticks_in(times, ticks)
      len = #value
    elseif (len - 8) % ticks.width ~= 0 then
      return nil
    end
    s.redated = redated
    local newest, first = u56(value, 2), 9
    if now - newest < window then
      -- a unit is live while it is less than `span` older than the newest
      local span, tick, modulus, read, width = window - (now - newest), newest % ticks.modulus, ticks.modulus, ticks.read, ticks.width
      while first < len and (tick - read(value, first)) % modulus >= span do first = first + width end
      s.value, s.first, s.live, s.newest = value, first, (len - first + 1) / width, newest
    end
  end
  s.room = rule.limit - s.live
  return s
end

function log.take(s, n)
  s.room, s.taken = s.room - n, (s.taken or 0) + n
end

function log.used(s) return s.live + (s.taken or 0) end

-- the n-th oldest unit must leave; those taken in this call come last
function log.after(s, n)
  local ticks, window = s.rule.ticks, s.rule.window
  if n > s.live then return window end
  local age = (s.newest - ticks.read(s.value, s.first + (n - 1)*ticks.width)) % ticks.modulus
  return window - (s.now - s.newest) - age
end

-- the value to store, and the us that it matters
function log.encode(s, stamp)
  local rule = s.rule
  return char(rule.ticks.form) .. stamp.full .. sub(s.value, s.first) .. rep(stamp[rule.ticks.width], s.taken or 0), rule.window
end
