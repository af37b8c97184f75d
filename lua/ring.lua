-- The sliding log of slidinglog.lua as a ring in place, for limits above 128:
-- a decision touches the header and the slots that it needs, however large the
-- limit is.
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
-- A ring whose rule has changed, or whose clock has stepped back, is laid anew
-- when it is next written: a copy of the live slots in order. Until then it is read
-- where it is, if its ticks are as wide as those of the rule.

local ring = {}
local rings = {nil, nil, nil, nil} -- the ring of each key

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

-- @rare
-- reads a ring that must be laid anew, or says what is wrong with its key
local function read_whole(s, now)
  local ticks, newest, ahead = live_ticks(call('GET', s.key), s.rule, now)
  if not ticks then return WRONG_VALUE end
  local width = s.rule.short and 4 or 6
  s.whole, s.slots, s.live, s.newest, s.redated = true, ticks, #ticks / width, newest, ahead
  s.oldest = end_of(ticks, width, newest)
end

function ring.take(rule, k, n)
  room[k], taken[k], reset[k] = room[k] - n, taken[k] + n, rule.window
  if more[k] == 0 then more[k] = rule.window end
end

function ring.load(rule, now)
  local limit, window, form = rule.limit, rule.window, rule.short and RING_SHORT or RING_LONG
  for k = rule.first, rule.last do
    local s = {
      rule = rule, key = keys[k], live = 0, slots = '', from = 0, -- and what the header holds:
      head = nil, size = nil, cursor = 0, oldest = 0, newest = 0, whole = nil, redated = nil,
    }
    local header = redis.pcall('GETRANGE', s.key, '0', '29')
    if type(header) == 'table' then
      problem[k] = WRONG_TYPE
    elseif #header == 30 and byte(header, 1) == form and u56(header, 24) <= now then
      s.size, s.cursor, s.newest = u24(header, 2), u24(header, 11), u56(header, 24)
      if s.size == limit and u48(header, 5) == window then s.head = sub(header, 1, 10) else s.whole = true end
      local live, oldest = u24(header, 14), u56(header, 17)
      if s.cursor >= s.size or live > s.size then
        problem[k] = WRONG_VALUE
      elseif live > 0 and now - s.newest < window then
        s.live, s.oldest = live, oldest
        if now - oldest >= window then expire(s, now, window) end
      end
    elseif header == '' then
      s.whole = true
    else
      problem[k] = read_whole(s, now)
      if s.redated then redated[k] = true end
    end
    local live = s.live
    rings[k], room[k], taken[k], more[k], reset[k] = s, limit - live, 0, 0, 0
    if live > 0 then
      more[k] = window - (now - (live > limit and time_at(s, live - limit) or s.oldest))
      reset[k] = window - (now - s.newest)
    end
  end
end

-- @rare
function ring.after(rule, k, n, now)
  local s = rings[k]
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
-- lays a ring anew; a lowered limit may leave more than it admits: keep them all
local function write_whole(s, n, head, stamp, ttl)
  local live, width = s.live + n, s.rule.short and 4 or 6
  local size = live > s.rule.limit and live or s.rule.limit
  return call('SET', s.key, char(byte(head, 1)) .. be24(size) .. sub(head, 5) .. be24(live % size) .. be24(live) ..
    be56(s.oldest) .. stamp .. (s.size and live_slots(s) or s.slots) .. rep_many(sub(stamp, 8 - width), n), 'PX', ttl)
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
  local limit, window, form, width = rule.limit, rule.window, RING_SHORT, 4
  if not rule.short then form, width = RING_LONG, 6 end
  local ttl, tick = 2*ceil(window / 1000) + grace, sub(stamp, 8 - width)
  for k = rule.first, rule.last do
    local s, n = rings[k], taken[k]
    if (n > 0 or redated[k]) and not problem[k] then
      local head, ahead = s.head or char(form) .. be24(limit) .. sub(be56(window), 2), limit - s.cursor
      if s.live == 0 then s.oldest = now end
      if s.whole then
        write_whole(s, n, head, stamp, ttl)
      else
        local length = call('SETRANGE', s.key, 30 + s.cursor*width, n == 1 and tick or rep_many(tick, n < ahead and n or ahead))
        if n < ahead and length == 30 + (s.cursor + n)*width then grow(s, n, ttl) end
        if n > ahead then call('SETRANGE', s.key, '30', rep_many(tick, n - ahead)) end
        call('SETRANGE', s.key, '0', head .. be24((s.cursor + n) % limit) .. be24(s.live + n) .. be56(s.oldest) .. stamp)
        -- the first write in each interval as long as the window outlives all units of that interval
        if s.live == 0 or s.newest - s.newest % window ~= now - now % window then call('PEXPIRE', s.key, ttl) end
      end
    end
  end
end

function log.prepare(rule)
  if rule.limit > 128 then rule.as = ring end
end
