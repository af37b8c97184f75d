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
-- in O(limit) when it is next written.

local ring = {take = log.take}
local rings = {} -- the ring of each key

-- the time of the j-th oldest unit, from 0. Slots are read by the dozen, since
-- the neighbours are asked for next.
local function time_at(s, j)
  if s.times then return s.times[j + 1] end
  if j == 0 then return s.oldest end
  local width, size = s.rule.width, s.rule.limit
  local i = (j - s.from)*width + 1
  if i < 1 or i + width - 1 > #s.slots then
    local slot = (s.cursor - s.live + j) % size
    local stop = slot + 48 < size and slot + 48 or size
    s.from, s.slots, i = j, call('GETRANGE', s.key, 30 + slot*width, 29 + stop*width), 1
    if #s.slots < width then return s.newest end -- something else has cut it short: count it as new
  end
  return s.newest - (s.newest - s.rule.read(s.slots, i)) % s.rule.modulus
end

-- drops what has left the window: gallops, then bisects, to the first live unit
local function expire(s, now)
  local window = s.rule.window
  if now - s.newest >= window then s.live = 0; return end
  if now - s.oldest < window then return end
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

-- the ring of a key at now, or nil and what is wrong with the key
local function open(rule, key, now)
  local s = {rule = rule, key = key, cursor = 0, live = 0, oldest = 0, newest = 0, slots = '', from = 0}
  local header = redis.pcall('GETRANGE', key, '0', '29')
  if type(header) == 'table' then return nil, WRONG_TYPE end
  if header == '' then return s end
  if #header == 30 and byte(header, 1) == rule.ring and u24(header, 2) == rule.limit and
      u48(header, 5) == rule.window and u56(header, 24) <= now then
    s.head = sub(header, 1, 10)
    s.cursor, s.live, s.oldest, s.newest = u24(header, 11), u24(header, 14), u56(header, 17), u56(header, 24)
    if s.cursor >= rule.limit or s.live > rule.limit then return nil, WRONG_VALUE end
    if s.live > 0 then expire(s, now) end
    return s
  end
  local times, ahead = times_of(call('GET', key), rule.window, now)
  if not times then return nil, WRONG_VALUE end
  s.times, s.redated, s.live = times, ahead, #times
  s.oldest, s.newest = times[1] or 0, times[#times] or 0
  return s
end

function ring.load(rule, now)
  rule.ring = rule.short and RING_SHORT or RING_LONG
  for k = rule.first, rule.last do
    local s, wrong = open(rule, keys[k], now)
    local live, window = s and s.live or 0, rule.window
    room[k], taken[k], more[k], reset[k] = rule.limit - live, 0, 0, 0
    if not s then
      problem[k] = wrong
    else
      rings[k] = s
      if s.redated then redated[k] = true end
      if live > 0 then
        more[k] = window - (now - time_at(s, live > rule.limit and live - rule.limit or 0))
        reset[k] = window - (now - s.newest)
      end
    end
  end
end

function ring.after(rule, k, n, now)
  local s = rings[k]
  return n > s.live and rule.window or rule.window - (now - time_at(s, n - 1))
end

local function write(s, n, now, stamp, grace)
  local rule, key, live = s.rule, s.key, s.live + n
  local width, limit, window, tick = rule.width, rule.limit, rule.window, sub(stamp, 8 - rule.width)
  local size = s.times and live > limit and live or limit -- a lowered limit may leave more than it admits: keep them all
  local cursor = s.times and live % size or (s.cursor + n) % size
  local header = (s.head or char(rule.ring) .. be24(size) .. sub(be56(window), 2)) ..
    be24(cursor) .. be24(live) .. be56(s.live > 0 and s.oldest or now) .. stamp
  local ttl = 2*ceil(window / 1000) + grace
  if s.times then
    call('SET', key, header .. ticks_in(s.times, width) .. rep(tick, n), 'PX', ttl)
    return
  end
  local ahead = limit - s.cursor
  call('SETRANGE', key, 30 + s.cursor*width, rep(tick, n < ahead and n or ahead))
  if n > ahead then call('SETRANGE', key, '30', rep(tick, n - ahead)) end
  call('SETRANGE', key, '0', header)
  -- the first write in each interval as long as the window outlives all units of that interval
  if s.live == 0 or s.newest - s.newest % window ~= now - now % window then call('PEXPIRE', key, ttl) end
end

function ring.save(rule, now, stamp, grace)
  for k = rule.first, rule.last do
    if not problem[k] and (taken[k] > 0 or redated[k]) then write(rings[k], taken[k], now, stamp, grace) end
  end
end

function log.prepare(rule)
  if rule.limit > 128 then rule.as = ring end
end
