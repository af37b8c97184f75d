-- The sliding log of slidinglog.lua as a ring in place, for limits above 128:
-- a decision touches the header and the slots that it needs, however large the
-- limit is. The only part of the script besides take.lua that calls Redis.
--
-- value   form:1  size:3  window:6  cursor:3  live:3  oldest:7  newest:7  slot:W …
-- form    'c': W = 4, windows below 2^32 us;  'd': W = 6
-- size    slots in the ring: the limit when it was laid
-- window  us; with size it tells whether the rule has changed since
-- cursor  the slot that is written next, from 0
-- live    units in the window at the last write; they end before the cursor
-- oldest, newest   the times of the first and the last of them, us
--
-- A ring whose rule has changed, or whose clock has stepped back, is laid anew
-- in O(limit) when it is next written.

-- the time of the j-th oldest unit, from 0
local function time_at(s, j)
  if s.times then return s.times[j + 1] end
  if j == 0 then return s.oldest end
  local ticks = s.rule.ticks
  local i = 30 + (s.cursor - s.live + j) % s.rule.limit * ticks.width
  local tick = call('GETRANGE', s.key, i, i + ticks.width - 1)
  if #tick < ticks.width then return s.newest end -- cut short by another hand: count it as new
  return s.newest - (s.newest - ticks.read(tick, 1)) % ticks.modulus
end

-- drops what has left the window: gallops, then bisects, to the first live unit
local function expire(s)
  local now, window = s.rule.now, s.rule.window
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
  s.live, s.oldest = s.live - high, oldest
end

local function header(s, size, cursor, live, oldest, stamp)
  return char(s.rule.ticks.ring) .. be24(size) .. be48(s.rule.window) .. be24(cursor) .. be24(live) .. be56(oldest) .. stamp.full
end

local function save_ring(s, _, stamp)
  local rule, taken = s.rule, s.taken
  local live = s.live + taken
  local tick, width = stamp[rule.ticks.width], rule.ticks.width
  local oldest = s.live > 0 and s.oldest or s.rule.now
  local ttl = rule.life
  if s.times then
    -- a lowered limit may leave more live units than it admits: keep them all
    local size = live > rule.limit and live or rule.limit
    call('SET', s.key, header(s, size, live % size, live, oldest, stamp) ..
      ticks_in(s.times, rule.ticks) .. rep(tick, taken), 'PX', ttl)
    return
  end
  local ahead = rule.limit - s.cursor
  if taken <= ahead then
    call('SETRANGE', s.key, 30 + s.cursor*width, rep(tick, taken))
  else
    call('SETRANGE', s.key, 30 + s.cursor*width, rep(tick, ahead))
    call('SETRANGE', s.key, 30, rep(tick, taken - ahead))
  end
  call('SETRANGE', s.key, 0, header(s, rule.limit, (s.cursor + taken) % rule.limit, live, oldest, stamp))
  -- the first write in each interval as long as the window outlives all units of that interval
  if s.live == 0 or s.newest - s.newest % rule.window ~= s.rule.now - s.rule.now % rule.window then call('PEXPIRE', s.key, ttl) end
end

local function ring_after(s, n)
  if n > s.live then return s.rule.window end
  return s.rule.window - (s.rule.now - time_at(s, n - 1))
end

local function load_ring(key, rule, now)
  local s = {rule = rule, key = key, cursor = 0, live = 0, oldest = 0, newest = 0, taken = 0, more = 0, reset = 0}
  local header = redis.pcall('GETRANGE', key, 0, 29)
  if type(header) == 'table' then return nil, WRONG_TYPE end
  if header ~= '' then
    if #header < 12 then return nil end
    if #header == 30 and byte(header, 1) == rule.ticks.ring and u24(header, 2) == rule.limit and
        u48(header, 5) == rule.window and u56(header, 24) <= now then
      s.cursor, s.live, s.oldest, s.newest = u24(header, 11), u24(header, 14), u56(header, 17), u56(header, 24)
      if s.cursor >= rule.limit or s.live > rule.limit then return nil end
      if s.live > 0 then expire(s) end
    else
      s.times, s.redated = times_of(call('GET', key), rule.window, now)
      if not s.times then return nil end
      s.live = #s.times
      s.oldest, s.newest = s.times[1] or 0, s.times[s.live] or 0
    end
  end
  local room = rule.limit - s.live
  s.room = room
  if s.live > 0 then
    s.more = ring_after(s, room < 0 and 1 - room or 1)
    s.reset = rule.window - (now - s.newest)
  end
  return s
end
