-- The sliding log of slidinglog.lua for limits above 128. A log of at most 128
-- units is a string as there, which most clients never outgrow. A longer one is a
-- ring in place: a decision touches the header and the slots that it needs, however
-- long the log is. A ring that has at most 64 units left becomes a string when it is
-- next written.
--
-- value   form:1  size:3  window:6  cursor:3  live:3  oldest:7  newest:7  slot:W …
-- form    'c': W = 4, windows below 2^32 us;  'd': W = 6
-- size    slots in the ring: the limit when it was laid
-- window  us; with size it shows whether the rule has changed since
-- cursor  the slot that is written next, from 0
-- live    units in the window at the last write; they end before the cursor
-- oldest, newest   the times of the first and the last of them, us
--
-- @value c 34 4
-- @value d 36 6
--
-- A ring whose rule has changed is laid anew when it is next written: a copy of the
-- live slots in order. Until then it is read where it is, if its ticks are as wide as
-- those of the rule. If they are not, or if the clock has stepped back, the whole
-- value is read as a string.

local STRING_MOST, RING_LEAST = 128, 65 -- units of a log in each form

local ring = {}
local rings = {nil, nil, nil, nil} -- the ring of each key, if it has one: otherwise see values

-- the time of the j-th oldest unit, from 0. Slots are read by the dozen, since
-- the neighbours are asked for next.
local function time_at(s, j)
  if j == 0 then return s.oldest end
  local width, modulus, read, size = 4, 4294967296, u32, s.size
  if not s.rule.short then width, modulus, read = 6, 281474976710656, u48 end
  local i = (j - s.from)*width + 1
  if i < 1 or i + width - 1 > #s.slots then
    local slot = (s.cursor - s.live + j) % size
    local stop = slot + 48 < size and slot + 48 or size
    s.from, s.slots, i = j, call('GETRANGE', s.key, 30 + slot*width, 29 + stop*width), 1
    if #s.slots < width then return s.newest end -- something else has cut it short: count it as new
  end
  return s.newest - (s.newest - read(s.slots, i)) % modulus
end

-- drops the units of s that have left the window: gallops, then bisects, to the
-- first live one
local function expire(s, now, window)
  local low, high = 0, 1
  while high < s.live and now - time_at(s, high) >= window do low = high; high = high * 2 end
  if high > s.live then high = s.live end
  while high - low > 1 do
    local middle = (low + high - (low + high) % 2) / 2
    if now - time_at(s, middle) >= window then low = middle else high = middle end
  end
  local oldest = high < s.live and time_at(s, high) or s.newest
  s.live, s.from, s.oldest = s.live - high, s.from - high, oldest
end

-- fills in the row of a key that has a ring, from a value that begins with its header
local function load_ring(rule, now, k, value, newest)
  local limit, window, live, oldest = rule.limit, rule.window, u24(value, 14), u56(value, 17)
  local s = {
    rule = rule, key = keys[k], live = 0, slots = '', from = 0, oldest = 0,
    size = u24(value, 2), cursor = u24(value, 11), newest = newest, head = nil,
  }
  if s.size == limit and u48(value, 5) == window then s.head = sub(value, 1, 10) end
  if s.cursor >= s.size or live > s.size then
    problem[k] = WRONG_VALUE
  elseif live > 0 and now - newest < window then
    s.live, s.oldest = live, oldest
    if now - oldest >= window then expire(s, now, window) end
  end
  live = s.live
  rings[k], room[k], taken[k], more[k], reset[k] = s, limit - live, 0, 0, 0
  if live > 0 then
    more[k] = window - (now - (live > limit and time_at(s, live - limit) or s.oldest))
    reset[k] = window - (now - newest)
  end
end

function ring.take(rule, k, n)
  log.take(rule, k, n) -- @inline
end

function ring.load(rule, now)
  local ring_form, form, width, modulus, read, most = RING_SHORT, SHORT, 4, 4294967296, u32, '520'
  if not rule.short then ring_form, form, width, modulus, read, most = RING_LONG, LONG, 6, 281474976710656, u48, '776' end
  for k = rule.first, rule.last do
    -- the header of a ring, or all of a string: only one whose limit was lowered has more than STRING_MOST units
    local value = redis.pcall('GETRANGE', keys[k], '0', most)
    local newest = type(value) == 'string' and #value >= 30 and byte(value, 1) == ring_form and u56(value, 24)
    if newest and newest <= now then
      load_ring(rule, now, k, value, newest) -- @inline
    elseif type(value) == 'table' then
      problem[k] = WRONG_TYPE
    else
      if value == '' then value = nil elseif #value > 8 + STRING_MOST*width then value = call('GET', keys[k]) end
      load_value(rule, now, k, value, form, width, modulus, read) -- @inline
    end
  end
end

-- @rare
function ring.after(rule, k, n, now)
  local s = rings[k]
  if not s then return log.after(rule, k, n, now) end
  return n > s.live and rule.window or rule.window - (now - time_at(s, n - 1))
end

-- @rare
-- the live slots of a ring whose rule has changed
local function live_slots(s)
  local size, live, width = s.size, s.live, s.rule.short and 4 or 6
  if live == 0 then return '' end
  local from = (s.cursor - live) % size
  local stop, slots = from + live, nil
  slots = call('GETRANGE', s.key, 30 + from*width, 29 + (stop < size and stop or size)*width)
  if stop > size then slots = slots .. call('GETRANGE', s.key, '30', 29 + (stop - size)*width) end
  -- something else has cut it short: count what is missing as new
  return slots .. rep_many(sub(be56(s.newest), 8 - width), live - #slots / width)
end

-- @rare
-- lays a ring with the live units of a key and n taken now; a lowered limit may leave
-- more than it admits: keep them all
local function lay(rule, k, n, now, stamp, ttl)
  local s, form, width = rings[k], RING_SHORT, 4
  if not rule.short then form, width = RING_LONG, 6 end
  local ticks, oldest = s and live_slots(s) or sub(values[k], firsts[k]), now
  if ticks ~= '' then oldest = s and s.oldest or end_of(ticks, width, u56(values[k], 2)) end
  local live = #ticks / width + n
  local size = live > rule.limit and live or rule.limit
  return call('SET', keys[k], char(form) .. be24(size) .. sub(be56(rule.window), 2) .. be24(live % size) .. be24(live) ..
    be56(oldest) .. stamp .. ticks .. rep_many(sub(stamp, 8 - width), n), 'PX', ttl)
end

-- @rare
-- makes space behind the last slot. Redis doubles a string that SETRANGE makes
-- longer, while one that is set has the size that it needs.
local function grow(s, n, ttl)
  local slots, limit, width = s.cursor + n, s.rule.limit, s.rule.short and 4 or 6
  local size = slots + ceil(slots / 4) + 16
  if size > limit then size = limit end
  return call('SET', s.key, call('GET', s.key) .. rep_many('\0', (size - slots)*width), 'PX', ttl)
end

function ring.save(rule, now, stamp, grace)
  local limit, window, form, width = rule.limit, rule.window, SHORT, 4
  if not rule.short then form, width = LONG, 6 end
  local ttl, tick, string_ttl = 2*ceil(window / 1000) + grace, sub(stamp, 8 - width), nil
  for k = rule.first, rule.last do
    local s, n = rings[k], taken[k]
    if not problem[k] and (n > 0 or redated[k]) then
      local live = s and s.live or (#values[k] - firsts[k] + 1) / width
      if live + n <= (s and RING_LEAST - 1 or STRING_MOST) then
        string_ttl = string_ttl or tostring(ceil(window / 1000) + grace) -- as text: see log.save
        call('PSETEX', keys[k], string_ttl,
          char(form) .. stamp .. (s and live_slots(s) or sub(values[k], firsts[k])) .. (n == 1 and tick or rep(tick, n)))
      elseif s and s.head then
        local ahead = limit - s.cursor
        local length = call('SETRANGE', s.key, 30 + s.cursor*width, n == 1 and tick or rep_many(tick, n < ahead and n or ahead))
        if n < ahead and length == 30 + (s.cursor + n)*width then grow(s, n, ttl) end
        if n > ahead then call('SETRANGE', s.key, '30', rep_many(tick, n - ahead)) end
        call('SETRANGE', s.key, '0',
          s.head .. be24((s.cursor + n) % limit) .. be24(live + n) .. be56(live > 0 and s.oldest or now) .. stamp)
        -- the first write in each interval as long as the window outlives all units of that interval
        if live == 0 or s.newest - s.newest % window ~= now - now % window then call('PEXPIRE', s.key, ttl) end
      else
        lay(rule, k, n, now, stamp, ttl)
      end
    end
  end
end

function log.prepare(rule)
  if rule.limit > 128 then rule.as = ring end
end
