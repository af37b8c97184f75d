-- The sliding log: at most `limit` units in any window, exactly. The twin of
-- core/slidinglog.go. For the stored forms see logforms.lua. With ring.lua, a log of a
-- limit above 128 is kept in one string only while it has few units.
--
-- params   the head of a value that only this version has written
--
-- @needs logforms.lua
-- @needs ring.lua above 128

local CUT = 528 -- more bytes than a string of 4-byte ticks has; one of 6-byte ticks has at most 783

local log = {}
local large = log -- the algorithm of large limits
local values, firsts = {nil, nil, nil, nil}, {nil, nil, nil, nil} -- the value, and where its first live tick is, unless it is mixed

-- @rare
-- fills in the row of a key from a value that another version wrote, a ring, or one that
-- is ahead of now
local function load_mixed(rule, now, k, value)
  local form = byte(value, 1)
  local newest = (form == RING_SHORT or form == RING_LONG) and #value >= 30 and u56(value, 24)
  if newest and newest <= now then
    load_ring(rule, now, k, value, newest) -- @inline
  else
    if #value >= CUT then value = call('GET', keys[k]) end
    local s = whole_log(value, rule, now)
    if s then
      redated[k] = s.ahead
      show_log(rule, now, k, s)
    else
      problem[k] = WRONG_VALUE
      values[k], firsts[k], room[k], taken[k], more[k], reset[k] = '', 1, 0, 0, 0, 0
    end
  end
end

-- fills in the row of a key from its value, or from nil
local function load_value(rule, now, k, value, head, limit, window, first, width, modulus)
  local last, tick, newest = 0, 0, 0
  if value then
    last = #value - 6
    if last >= first and (last - first) % width == 0 and sub(value, 1, first - 1) == head then
      local a, b, c, d, e, f, g = byte(value, last, last + 6)
      if width == 4 then
        tick = ((a*256 + b)*256 + c)*256 + d
        newest = ((e*256 + f)*256 + g)*4294967296 + tick
      else
        tick = ((((a*256 + b)*256 + c)*256 + d)*256 + e)*256 + f
        newest = g*281474976710656 + tick
      end
    else
      newest = now + 1
    end
  end
  if newest > now then
    load_mixed(rule, now, k, value)
  else
    -- a unit is live while it is less than `span` older than the newest
    local i, live, soonest, latest, span = 1, 0, 0, 0, value and window - (now - newest) or 0
    if span > 0 then
      local age
      i = first - width
      repeat
        i = i + width
        if i == first + 8*width then i = first + count_until(sub(value, first, width - 8), width, newest, newest - span)*width end
        local a, b, c, d, e, f = byte(value, i, i + width - 1) -- not by a call of u32, which costs 2 % of a decision
        age = ((a*256 + b)*256 + c)*256 + d
        if width == 6 then age = (age*256 + e)*256 + f end
        age = (tick - age) % modulus
      until age < span
      live, soonest, latest = (last - i) / width + 1, span - age, span
    else
      value = ''
    end
    values[k], firsts[k], room[k], taken[k], more[k], reset[k] = value, i, limit - live, 0, soonest, latest
  end
end

function log.prepare(rule, params)
  rule.head = params
  if rule.limit > 128 then rule.as, rule.ring = large, sub(params, 2) end
end

function log.load(rule, now)
  local head, limit, window, before, width, modulus, got = rule.head, rule.limit, rule.window, rule.first - 1, 4, 4294967296, nil
  local first = #head + 1
  if not rule.short then width, modulus = 6, 281474976710656 end
  if before + 1 < rule.last then
    got = values_of(rule)
  else -- at most what a string has, since another version may have a long ring
    local value = redis.pcall('GETRANGE', keys[rule.last], '0', width == 4 and '527' or '783')
    if #value == 0 then -- nothing, or the table of an error
      if value ~= '' then problem[rule.last] = WRONG_TYPE end
      value = false
    end
    got = {value}
  end
  for q = 1, rule.last - before do
    local k, value = before + q, got[q]
    load_value(rule, now, k, value, head, limit, window, first, width, modulus) -- @inline
  end
end

-- units taken now leave last
function log.take(rule, k, n)
  local s = mixed and mixed[k]
  if s and s.more then more[k], s.more = s.more, nil end
  room[k], taken[k], reset[k] = room[k] - n, taken[k] + n, rule.window
  if more[k] == 0 then more[k] = rule.window end
end

-- @rare
-- the n oldest units must leave
function log.after(rule, k, n, now)
  local s = mixed and mixed[k]
  if s then
    local own = s.own or s.live
    if n > own then return rule.window end -- one that was taken by this call
    local at = time_at(s, s.live - own + n - 1) + rule.window
    if s.expires and s.expires < at and taken[k] == 0 then at = s.expires end
    return at - now
  end
  local width, modulus, read = 4, 4294967296, u32
  if not rule.short then width, modulus, read = 6, 281474976710656, u48 end
  local value, i = values[k], firsts[k] + (n - 1)*width
  if i > #value - 6 then return rule.window end -- one that was taken by this call
  local newest = width == 4 and u24(value, -3)*4294967296 + u32(value, -7) or newest_of(value, width)
  return rule.window - (now - newest) - (newest - read(value, i)) % modulus
end

-- @rare
local function save_mixed(k, s, n, now, stamp, grace)
  if s.stays and s.live + n >= RING_LEAST then
    write_ring(s, n, now, stamp, grace) -- @inline
  else
    write_anew(keys[k], s, n, now, grace)
  end
end

function log.save(rule, now, stamp, grace)
  local width = rule.short and 4 or 6
  local ttl = tostring(ceil(rule.window / 1000) + grace) -- as text once: Redis is slow at writing numbers
  local head, tick, above = rule.head, sub(stamp, 8 - width), sub(stamp, 1, 7 - width)
  local one = tick .. above
  for k = rule.first, rule.last do
    local n = taken[k]
    if (n > 0 or redated[k]) and not problem[k] then
      local value = values[k]
      if value then
        call('PSETEX', keys[k], ttl, head .. sub(value, firsts[k], width - 8) .. (n == 1 and one or rep(tick, n) .. above))
      else
        save_mixed(k, mixed[k], n, now, stamp, grace)
      end
    end
  end
end

algorithms[0] = log

-- @debt
-- Takes units that were used at a time, and keeps the newest of all, as many as the largest
-- limit. For the rest see debts.lua.
function log.charge(rule, value, now, n, at)
  local s, life = whole_log(value, rule, now), nil
  if not s then return nil, WRONG_VALUE end
  local owes = n > 0 and now - at < s.window
  if owes or s.ahead then
    local ticks, width, newest = s.slots, s.window < 4294967296 and 4 or 6, s.newest
    if width ~= s.width then ticks = widened(ticks, newest) end
    if owes then
      local i = count_until(ticks, width, newest, at) * width
      if ticks == '' or at > newest then newest = at end
      ticks = sub(ticks, 1, i) .. rep_many(sub(be56(at), 8 - width), math.min(n, s.limit)) .. sub(ticks, i + 1)
      ticks = sub(ticks, math.max(1, #ticks - s.limit*width + 1))
    end
    value, life = value_of(s.limit, s.window, ticks, newest, STRING_MOST)
    s = whole_log(value, rule, now)
  end
  show_log(rule, now, 1, s)
  return {room = room[1], more = more[1], reset = reset[1]}, life and value, life
end

-- @return
-- Gives back the units of a time. Units ahead of now stay as they are: the next decision
-- dates them now.
function log.give_back(value, r, now)
  local ticks, width, newest, limit, window = ticks_of(value)
  if not ticks then return nil, WRONG_VALUE end
  if r.at > now or now - r.at >= window then return 0 end
  local first = count_until(ticks, width, newest, r.at - 1)
  local given = math.min(r.cost, count_until(ticks, width, newest, r.at) - first)
  ticks = sub(ticks, 1, first*width) .. sub(ticks, (first + given)*width + 1)
  if given == 0 or ticks == '' then return given, '' end
  local last = sub(ticks, -width)
  newest = newest - (newest - (width == 4 and u32(last, 1) or u48(last, 1))) % (width == 4 and 4294967296 or 281474976710656)
  return given, value_of(limit, window, ticks, newest, byte(value, 1) >= RING_SHORT and 0 or STRING_MOST)
end
