-- The sliding log: at most `limit` units in any window, exactly. The twin of
-- core/slidinglog.go. For the stored forms see logforms.lua. With ring.lua, a log of a
-- limit above 128 is kept in one string only while it has few units.
--
-- params   the head of a value that only this version has written
--
-- @needs logforms.lua

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
  if rule.limit > 128 then rule.as, rule.ring = large, sub(params, 2) end -- @take
  if rule.limit > 128 then rule.upto = rule.short and '527' or '783' end
end

-- Another version may have long rings, which MGET would copy: so of the first key no more is
-- read than a string has. The rest is read in parts, each four times as long as the one
-- before, and key by key once there was a ring.
function log.load(rule, now)
  local head, limit, window, width, modulus, upto = rule.head, rule.limit, rule.window, 4, 4294967296, '527'
  local first, from, part, got = #head + 1, rule.first, 1, nil
  if not rule.short then width, modulus, upto = 6, 281474976710656, '783' end
  while from <= rule.last do
    local to = from + part - 1
    if to > rule.last then to = rule.last end
    if part > 1 then
      got = values_of({first = from, last = to})
    else
      local value = redis.pcall('GETRANGE', keys[from], '0', upto)
      if #value == 0 then -- nothing, or the table of an error
        if value ~= '' then problem[from] = WRONG_TYPE end
        value = false
      end
      got = {value}
    end
    part = part * 4
    for q = 1, to - from + 1 do
      local k, value = from + q - 1, got[q]
      load_value(rule, now, k, value, head, limit, window, first, width, modulus) -- @inline
      if mixed and mixed[k] and mixed[k].size then part = 1 end
    end
    from = to + 1
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
  local ttl = string.format('%.0f', ceil(rule.window / 1000) + grace) -- as text once: Redis is slow at writing numbers
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
  if rule.debt and rule.debt < 0 then
    n = math.min(n, math.max(0, rule.limit - s.own))
    rule.takes = n
  end
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
  show_log(rule, now, 0, s) -- a row of no key: the others may be in use, see tallies.lua
  return {room = room[0], more = more[0], reset = reset[0]}, life and value, life
end

-- Charge of a string that only this version wrote: see add_units in tellers.lua.
function log.add_units(rule, value, now, n, stamp)
  local head, width, limit, first = rule.head, rule.short and 4 or 6, rule.limit, #rule.head + 1
  local a, b, c, d, e, f, g = byte(value, -7, -1)
  local size, newest = #value - 6 - first + width, nil
  if not g then return nil end
  if width == 4 then newest = ((((((e*256 + f)*256 + g)*256 + a)*256 + b)*256 + c)*256) + d else newest = (((((g*256 + a)*256 + b)*256 + c)*256 + d)*256 + e)*256 + f end
  if size < width or size % width ~= 0 or sub(value, 1, first - 1) ~= head or newest > now or n > limit then return nil end
  local units, at = size/width + n, now - rule.window
  if newest <= at then
    units, first = n, #value
  else
    local modulus, read, span, from = 4294967296, u32, newest - at, first
    if width == 6 then modulus, read = 281474976710656, u48 end
    while (newest - read(value, first)) % modulus >= span do
      first = first + width
      if first == from + 8*width then first = first + count_until(sub(value, first, width - 8), width, newest, at)*width end
    end
    units = units - (first - from)/width
  end
  if units > limit then
    first = first + (units - limit)*width
    units = limit
  end
  if units > STRING_MOST then return nil end
  local tick = sub(stamp, 8 - width)
  return head .. sub(value, first, width - 8) .. (n == 1 and tick or rep(tick, n)) .. sub(stamp, 1, 7 - width), rule.window
end

-- @return
-- @rare
-- give_back of a value in any form
local function give_back_mixed(value, r, now)
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

local tails = {} -- of rings by key: the last slots, as this call makes them; or false if the value is whole

-- whether the beginning of a value is enough
function log.partial(value) return byte(value, 1) == RING_SHORT or byte(value, 1) == RING_LONG end

-- @rare
-- the last slots of a ring of this version that is not ahead of now, or nil
local function tail_of(r, value, now)
  local width, size = r.short and 4 or 6, u24(value, 2)
  local cursor = u24(value, 11)
  local live = u24(value, 14)
  if byte(value, 1) ~= (width == 4 and RING_SHORT or RING_LONG) or size ~= r.limit or u48(value, 5) ~= r.window or
    u56(value, 24) > now or cursor >= size or live > size or live == 0 then return nil end
  if cursor == 0 then cursor = size end
  local from = cursor - math.min(live, cursor, 128)
  local slots = call('GETRANGE', keys[r.k], 30 + from*width, 29 + cursor*width)
  if #slots ~= (cursor - from)*width then return nil end
  return {head = sub(value, 1, 10), width = width, size = size, from = from, live = live, all = cursor - from == live,
    oldest = u56(value, 17), newest = u56(value, 24), slots = slots}
end

-- @rare
-- gives back to a ring where it is: its last slots move up. It returns nil if other slots
-- may be of that time.
local function give_back_tail(s, r, now)
  local key, width, slots, at = keys[r.k], s.width, s.slots, r.at
  if at > s.newest or now - at >= r.window then return 0 end
  local i = count_until(slots, width, s.newest, at - 1)
  if i == 0 and not s.all then return nil end
  local given = math.min(r.cost, count_until(slots, width, s.newest, at) - i)
  if given == 0 then return 0 end
  if given == s.live then return given, '' end
  slots = sub(slots, 1, i*width) .. sub(slots, (i + given)*width + 1)
  if i == 0 then s.oldest = oldest_of(slots, width, s.newest) end
  s.newest = oldest_of(sub(slots, -width), width, s.newest)
  s.slots, s.live = slots, s.live - given
  local header = s.head .. be24((s.from + #slots / width) % s.size) .. be24(s.live) .. be56(s.oldest) .. be56(s.newest)
  return given, header, function()
    call('SETRANGE', key, 30 + s.from*width, slots)
    call('SETRANGE', key, '0', header)
  end
end

-- @rare
-- give_back of a ring of which the beginning was read
local function give_back_ring(value, r, now)
  local k = r.k
  local s = tails[k]
  if not s then s = tail_of(r, value, now) end
  if s then
    tails[k] = s
    local given, rest, write = give_back_tail(s, r, now)
    if given then return given, rest, write end
  end
  do return end -- @settle
  local whole = call('GET', keys[k])
  if s then whole = sub(value, 1, 30) .. sub(whole, 31, 30 + s.from*s.width) .. s.slots .. sub(whole, 31 + s.from*s.width + #s.slots) end
  local given, rest, life = give_back_mixed(whole, r, now)
  if given and given > 0 then tails[k] = false end
  return given, rest, life
end

-- Gives back the units of a time. Units ahead of now stay as they are: the next decision
-- dates them now.
function log.give_back(value, r, now)
  local form = byte(value, 1) -- @ring
  if (form == RING_SHORT or form == RING_LONG) and r.upto and #value >= 30 and tails[r.k] ~= false then return give_back_ring(value, r, now) end -- @ring
  local head, width, at, cost = r.head, r.short and 4 or 6, r.at, r.cost
  local first, last = #head + 1, #value - 6
  local size = last - first
  if size < 0 or size % width ~= 0 or size >= STRING_MOST*width or size >= r.limit*width or sub(value, 1, first - 1) ~= head then
    return give_back_mixed(value, r, now) -- @batch
  end
  local a, b, c, d, e, f, g = byte(value, last, last + 6)
  local newest = ((a*256 + b)*256 + c)*256 + d
  if width == 4 then newest = ((e*256 + f)*256 + g)*4294967296 + newest else newest = g*281474976710656 + (newest*256 + e)*256 + f end
  if newest > now then
    return give_back_mixed(value, r, now) -- @batch
  end
  if now - at >= r.window then return 0, '' end -- @settle
  if at == newest and size >= cost*width then -- most often -- @settle
    local from, read, tick = last - (cost - 1)*width, width == 4 and u32 or u48, at % (width == 4 and 4294967296 or 281474976710656) -- @settle
    if read(value, from) == tick and read(value, from - width) <= tick then -- @settle
      return cost, sub(value, 1, from - 1) .. sub(value, last + width), r.window, true, nil, nil, true -- @settle
    end -- @settle
  end -- @settle
  if at > newest or now - at >= r.window or cost == 0 then return 0 end
  local tick, from = sub(be56(at), 8 - width), first - 1
  repeat from = string.find(value, tick, from + 1, true) until not from or (from - first) % width == 0 -- or it has bytes of two
  if not from then return 0 end
  local to, given = from + width, 1
  while given < cost and to <= last and sub(value, to, to + width - 1) == tick do to, given = to + width, given + 1 end
  if from == first and to > last then return given, '' end
  if to > last then -- the newest: those before it may have other bytes above
    newest = at - (at - (width == 4 and u32(value, from - 4) or u48(value, from - 6))) % (width == 4 and 4294967296 or 281474976710656)
    value = sub(value, 1, from - 1) .. sub(be56(newest), 1, 7 - width)
  else
    value = sub(value, 1, from - 1) .. sub(value, to)
  end
  do return given, value, r.window, true, nil, nil, true end -- @settle
  local age = r.alone and now - newest + (newest - (width == 4 and u32(value, first) or u48(value, first))) % (width == 4 and 4294967296 or 281474976710656)
  if not age or age >= r.window then return given, value, r.window, true end
  return given, value, r.window, true, nil, nil, r.limit - (#value - 6 - first) / width - 1, r.window - age, r.window - now + newest
end

function log.look(rule, now, k, value)
  local head, limit, window, width, modulus = rule.head, rule.limit, rule.window, 4, 4294967296
  local first = #head + 1
  if not rule.short then width, modulus = 6, 281474976710656 end
  load_value(rule, now, k, value, head, limit, window, first, width, modulus) -- @inline
end

function log.date(rule, k, now, grace)
  write_anew(keys[k], mixed[k], 0, now, grace)
end
