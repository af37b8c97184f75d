-- The stored forms of a sliding log, for slidinglog.lua and ring.lua.
--
-- Several versions of a rule, with other limits and windows, may charge one key in turn.
-- A value keeps the units that any of them counts: those within the longest window, and of
-- them the newest, as many as the largest limit. A version finds its own units among
-- them. It writes a larger limit or a longer window when it takes units.
--
-- string  head  tick:W …  above:7-W       one tick for each unit, oldest first; at most 128
-- head    'A' limit:1 window:3, W = 4;  'B' limit:1 window:5, W = 6;  windows in ms
--         'M' limit:3 window:6, W = 4;  'N' limit:3 window:6, W = 6;  windows in us, for
--         those that are no whole ms, and for limits above 128
-- W       4 for windows below 2^32 us (71.5 min), or else 6
-- tick    the time of a unit modulo 2^(8W); the newest is less than 2^(8W) later
-- above   the bytes of the time of the newest unit that its tick does not have
--
-- ring    form:1  limit:3  window:6  cursor:3  live:3  oldest:7  newest:7  slot:W …
-- form    'c': W = 4;  'd': W = 6
-- limit   the slots of the ring
-- cursor  the slot that is written next, from 0
-- live    units in the window at the last write; they end before the cursor
-- oldest, newest   the times of the first and the last of them
--
-- Times are us since the epoch. A key lives for a window after its newest unit, a ring for
-- two, but its units count for one.
--
-- @value A 12 4
-- @value B 14 6
-- @value M 17 4
-- @value N 17 6
-- @value c 34 4
-- @value d 36 6

local RING_SHORT, RING_LONG = 99, 100 -- 'c' 'd'
local STRING_MOST, RING_LEAST = 128, 65 -- units of a log in each form

-- @rare without state.lua
-- how many of the ticks, oldest first, are of times up to `at`
local function count_until(ticks, width, newest, at)
  local modulus, low, high = 4294967296, 0, #ticks / width
  if width == 6 then modulus = 281474976710656 end
  while low < high do
    local middle = (low + high - (low + high) % 2) / 2
    local tick = width == 4 and u32(ticks, middle*width + 1) or u48(ticks, middle*width + 1)
    if newest - (newest - tick) % modulus <= at then low = middle + 1 else high = middle end
  end
  return low
end

-- @rare
-- the time of the newest unit of a string
local function newest_of(value, width)
  if width == 4 then return u24(value, -3)*4294967296 + u32(value, -7) end
  return byte(value, -1)*281474976710656 + u48(value, -7)
end

-- @rare
-- the ticks of a value in any form, oldest first, and how wide they are; the time of the
-- newest; the largest limit and the longest window
local function ticks_of(value)
  local form, first, limit, window, width = byte(value, 1), 11, 0, 0, 4
  if #value < 12 then return nil end
  if form == RING_SHORT or form == RING_LONG then
    if #value < 30 then return nil end
    local size, cursor, live, ticks = u24(value, 2), u24(value, 11), u24(value, 14), nil
    if live > size or cursor >= size then return nil end
    if form == RING_LONG then width = 6 end
    local from = cursor - live
    if from >= 0 then
      ticks = sub(value, 31 + from*width, 30 + cursor*width)
    else
      ticks = sub(value, 31 + (from + size)*width, 30 + size*width) .. sub(value, 31, 30 + cursor*width)
    end
    window = u48(value, 5)
    if #ticks ~= live*width or (width == 4) ~= (window < 4294967296) then return nil end
    return ticks, width, u56(value, 24), size, window
  elseif form == 65 then -- 'A'
    first, limit, window = 6, byte(value, 2), u24(value, 3)*1000
  elseif form == 66 then -- 'B'
    first, limit, window, width = 8, byte(value, 2), (byte(value, 3)*4294967296 + u32(value, 4))*1000, 6
  elseif form == 77 or form == 78 then -- 'M' 'N'
    limit, window, width = u24(value, 2), u48(value, 5), form == 77 and 4 or 6
  else
    return nil
  end
  local last = #value - 6
  if last < first or (last - first) % width ~= 0 or last - first >= limit*width or (width == 4) ~= (window < 4294967296) then return nil end
  return sub(value, first, width - 8), width, newest_of(value, width), limit, window
end

-- @rare
-- the time of the first of the ticks, or of the newest unit if there are none
local function oldest_of(ticks, width, newest)
  if ticks == '' then return newest end
  if width == 4 then return newest - (newest - u32(ticks, 1)) % 4294967296 end
  return newest - (newest - u48(ticks, 1)) % 281474976710656
end

-- @rare
-- ticks of 6 bytes from those of 4, whose times have at most two values of the bytes above
local function widened(ticks, newest)
  local high = (newest - newest % 4294967296) / 4294967296
  local older = count_until(ticks, 4, newest, high*4294967296 - 1) * 4
  local function prefixed(part, n)
    if part == '' then return '' end
    return (string.gsub(part, '....', string.gsub(sub(be56(n), 6), '%%', '%%%%') .. '%0'))
  end
  return prefixed(sub(ticks, 1, older), high - 1) .. prefixed(sub(ticks, older + 1), high)
end

-- @rare
local function ring_of(limit, window, ticks, oldest, newest)
  local width = window < 4294967296 and 4 or 6
  local live = #ticks / width
  local head = char(width == 4 and RING_SHORT or RING_LONG) .. be24(limit) .. sub(be56(window), 2)
  return head .. be24(live % limit) .. be24(live) .. be56(oldest) .. be56(newest) .. ticks
end

-- @rare
-- the value that has at most `most` ticks as a string, and more as a ring, and the us that
-- it matters
local function value_of(limit, window, ticks, newest, most)
  local width, head = window < 4294967296 and 4 or 6, nil
  if #ticks > most*width then
    return ring_of(limit, window, ticks, oldest_of(ticks, width, newest), newest), 2*window
  end
  if limit > 128 or window % 1000 ~= 0 then
    head = (width == 4 and 'M' or 'N') .. be24(limit) .. sub(be56(window), 2)
  else
    head = (width == 4 and 'A' or 'B') .. char(limit) .. sub(be56(window / 1000), width == 4 and 5 or 3)
  end
  return head .. ticks .. sub(be56(newest), 1, 7 - width), window
end

-- What the script knows of a log that is a ring, or that another version wrote, by its key:
--
--   key, stays       of a ring; and whether this call may write it where it is
--   width, size, cursor, oldest, newest    of the value; the size only of a ring
--   limit, window    those to write; the limit is the size if there is none
--   live, own        units that are kept, and how many of the newest count for this version;
--                    all if there is none
--   slots, from      ticks that were read, and the number of the first of them
--   expires, more    when the key is new again, unless this call puts it off; and the `more`
--                    of state.lua if it does
local mixed -- nil if there is none, since an empty table costs a lone call 1 %

-- @rare without ring.lua
-- the time of the j-th oldest unit that is kept, from 0. Slots are read by the dozen, since
-- the neighbours are asked for next.
local function time_at(s, j)
  if j == 0 then return s.oldest end
  local width, size = s.width, s.size
  local i = (j - s.from)*width + 1
  if i < 1 or i + width - 1 > #s.slots then
    local slot = (s.cursor - s.live + j) % size
    local stop = slot + 48 < size and slot + 48 or size
    s.from, s.slots, i = j, call('GETRANGE', s.key, 30 + slot*width, 29 + stop*width), 1
    if #s.slots < width then return s.newest end -- something else has cut it short: count it as new
  end
  if width == 4 then return s.newest - (s.newest - u32(s.slots, i)) % 4294967296 end
  return s.newest - (s.newest - u48(s.slots, i)) % 281474976710656
end

-- @rare without ring.lua
-- drops the units of s of times up to `at`: gallops, then bisects, to the first that stays
local function expire(s, at)
  local low, high = 0, 1
  while high < s.live and time_at(s, high) <= at do low = high; high = high * 2 end
  if high > s.live then high = s.live end
  while high - low > 1 do
    local middle = (low + high - (low + high) % 2) / 2
    if time_at(s, middle) <= at then low = middle else high = middle end
  end
  local oldest = high < s.live and time_at(s, high) or s.newest
  s.live, s.from, s.oldest = s.live - high, s.from - high, oldest
end

-- @rare
-- how many units of s are later than `at`. It first reads about where they begin if the
-- units came evenly.
local function later_than(s, at)
  local live, low, high, step, width = s.live, 0, s.live - 1, 1024, s.width
  if live == 0 or s.newest <= at then return 0 elseif s.oldest > at then return live end
  local from = ceil(high*(at - s.oldest)/(s.newest - s.oldest)) - 512
  if from < 0 then from = 0 end
  local slot = (s.cursor - live + from) % s.size
  local n = math.min(1024, live - from, s.size - slot)
  s.from, s.slots = from, call('GETRANGE', s.key, 30 + slot*width, 29 + (slot + n)*width)
  local first = #s.slots == n*width and count_until(s.slots, width, s.newest, at)
  if first and first > 0 and first < n then return live - from - first end
  if first == n then
    low = from + n - 1
    while low + step < high and time_at(s, low + step) <= at do low, step = low + step, step*2 end
    if low + step < high then high = low + step end
  elseif first then
    high = from
    while high - step > low and time_at(s, high - step) > at do high, step = high - step, step*2 end
    if high - step > low then low = high - step end
  end
  while high - low > 1 do
    local middle = (low + high - (low + high) % 2) / 2
    if time_at(s, middle) <= at then low = middle else high = middle end
  end
  return live - high
end

-- @rare
-- the log in all of a value, those units dated now that are ahead of it, as a version of
-- the rule sees it. It copies and searches, since a loop over all units would hold Redis
-- for long.
local function whole_log(value, rule, now)
  local ticks, width, newest, limit, window = '', rule.short and 4 or 6, 0, 0, 0
  if value then ticks, width, newest, limit, window = ticks_of(value) end
  if not ticks then return nil end
  local s = {width = width, slots = ticks, from = 0, expires = newest + window, ahead = newest > now}
  if s.ahead then
    local upto = count_until(ticks, width, newest, now)
    ticks, newest, s.expires = sub(ticks, 1, upto*width) .. rep_many(sub(be56(now), 8 - width), #ticks / width - upto), now, nil
  elseif s.expires <= now then
    ticks, limit, window = '', 0, 0
  end
  s.limit = limit > rule.limit and limit or rule.limit
  s.window = window > rule.window and window or rule.window
  s.slots = sub(ticks, count_until(ticks, width, newest, now - s.window)*width + 1)
  s.live, s.newest, s.oldest = #s.slots / width, newest, oldest_of(s.slots, width, newest)
  s.own = s.live - count_until(s.slots, width, newest, now - rule.window)
  return s
end

-- @rare
-- the slots of the live units of a ring
local function live_slots(s)
  local size, live, width = s.size, s.live, s.width
  if live == 0 then return '' end
  local from = (s.cursor - live) % size
  local stop, slots = from + live, nil
  slots = call('GETRANGE', s.key, 30 + from*width, 29 + (stop < size and stop or size)*width)
  if stop > size then slots = slots .. call('GETRANGE', s.key, '30', 29 + (stop - size)*width) end
  -- something else has cut it short: count what is missing as new
  slots = sub(slots, 1, #slots - #slots % width)
  return slots .. rep_many(sub(be56(s.newest), 8 - width), live - #slots / width)
end

-- @rare
-- writes a log anew, with n units taken now
local function write_anew(key, s, n, now, grace)
  local ticks, width, limit = s.size and live_slots(s) or s.slots, s.window < 4294967296 and 4 or 6, s.limit or s.size
  if width ~= s.width then ticks = widened(ticks, s.newest) end
  ticks = ticks .. rep_many(sub(be56(now), 8 - width), n)
  local value, life = value_of(limit, s.window, sub(ticks, math.max(1, #ticks - limit*width + 1)), now, s.size and RING_LEAST - 1 or STRING_MOST)
  call('SET', key, value, 'PX', tostring(ceil(s.window / 1000)*(life / s.window) + grace))
end

-- @rare
-- makes space behind the last slot. Redis doubles a string that SETRANGE makes
-- longer, while one that is set has the size that it needs.
local function grow(s, n, ttl)
  local slots = s.cursor + n
  local size = slots + ceil(slots / 4) + 16
  if size > s.size then size = s.size end
  return call('SET', s.key, call('GET', s.key) .. rep_many('\0', (size - slots)*s.width), 'PX', ttl)
end

-- @rare without state.lua
-- writes n units taken now into a ring
local function write_ring(s, n, now, stamp, grace)
  local size, width, window, cursor, live, oldest = s.size, s.width, s.window, s.cursor, s.live, now
  local ttl, tick, ahead = 2*ceil(window / 1000) + grace, sub(stamp, 8 - width), size - cursor
  if live + n > size then -- the oldest make way
    if n < size then oldest = time_at(s, live + n - size) end
    live = size - n
  elseif live > 0 then
    oldest = s.oldest
  end
  local length = call('SETRANGE', s.key, 30 + cursor*width, n == 1 and tick or rep_many(tick, n < ahead and n or ahead))
  if n < ahead and length == 30 + (cursor + n)*width then grow(s, n, ttl) end
  if n > ahead then call('SETRANGE', s.key, '30', rep_many(tick, n - ahead)) end
  call('SETRANGE', s.key, '10', be24((cursor + n) % size) .. be24(live + n) .. be56(oldest) .. stamp)
  -- the first write in each interval as long as the window outlives all units of that interval
  if s.live == 0 or s.newest - s.newest % window ~= now - now % window then call('PEXPIRE', s.key, ttl) end
end

-- @rare
-- fills in the row of a key from the log that it has
local function show_log(rule, now, k, s)
  local limit, window, live, own = rule.limit, rule.window, s.live, s.own
  mixed = mixed or {}
  mixed[k], room[k], taken[k], more[k], reset[k] = s, limit - own, 0, 0, 0
  if own > 0 then
    more[k] = window - (now - time_at(s, live - own + (own > limit and own - limit or 0)))
    reset[k] = window - (now - s.newest)
    if s.expires and s.expires < s.newest + window then
      s.more = more[k]
      if s.expires - now < s.more then more[k] = s.expires - now end
      reset[k] = s.expires - now
    end
  end
end

-- @rare
-- fills in the row of a key that has a ring of another version
local function load_other_ring(rule, now, k, s)
  local limit, window, longest = rule.limit, rule.window, s.window
  s.limit, s.expires = s.size, s.newest + longest
  if s.live > 0 and s.expires > now then
    local kept = longest > window and longest or window
    if now - s.oldest >= kept then expire(s, now - kept) end
    s.own = kept > window and later_than(s, now - window) or s.live
  else
    s.live, s.own, s.limit, s.window = 0, 0, 0, 0
  end
  if s.limit < limit or s.window < window then
    s.limit, s.window, s.stays = s.limit > limit and s.limit or limit, s.window > window and s.window or window, false
  end
  show_log(rule, now, k, s)
end

-- fills in the row of a key that has a ring, from a value that begins with its header
local function load_ring(rule, now, k, value, newest)
  local limit, window, form = rule.limit, rule.window, byte(value, 1)
  local c, d, e, l, m, n, t, u, v, w, x, y, z = byte(value, 11, 23) -- at once, for 1 % of a lone decision
  local live, oldest = (l*256 + m)*256 + n, (((((t*256 + u)*256 + v)*256 + w)*256 + x)*256 + y)*256 + z
  local s = {
    key = keys[k], width = form == RING_SHORT and 4 or 6, size = limit, cursor = (c*256 + d)*256 + e, live = live,
    slots = '', from = 0, oldest = oldest, newest = newest, window = window, stays = true,
  }
  local other = sub(value, 2, 10) ~= rule.ring
  if other then s.size, s.window = u24(value, 2), u48(value, 5) end
  if s.cursor >= s.size or live > s.size or (s.width == 4) ~= (s.window < 4294967296) then
    problem[k], room[k], taken[k], more[k], reset[k] = WRONG_VALUE, 0, 0, 0, 0
  elseif other then
    load_other_ring(rule, now, k, s)
  else
    if now - newest >= window then s.live = 0 elseif now - s.oldest >= window then expire(s, now - window) end
    live = s.live
    mixed = mixed or {}
    mixed[k], room[k], taken[k], more[k], reset[k] = s, limit - live, 0, 0, 0
    if live > 0 then more[k], reset[k] = window - (now - s.oldest), window - (now - newest) end
  end
end
