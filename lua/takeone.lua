-- Decides a lone request of one ask by rules that are sliding logs, with a key for each rule:
-- take.lua for the usual call, without tables for each key and rule, in two thirds of the time.
-- KEYS, ARGV and the reply are those of take.lua.
--
-- Logs that another version of a rule wrote or that are ahead of now, and values that are no logs
-- it leaves to take.lua: the reply is then the time, 0 and the number of the call, and nothing has
-- been written. For the stored forms see logforms.lua.

local format, pcall, now, deadline, grace, spec, blob = string.format, redis.pcall, argv[1], argv[2] + 0, argv[3] + 0, argv[4], argv[5]
local number = tonumber(argv[#argv])
if now ~= '' then
  now = now + 0
else
  local t = call('TIME')
  now = t[1]*1000000 + t[2]
  if now > deadline and deadline > 0 then return {now, number} end
end

local out = {now, 1, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil}
local logs = {nil, nil, nil, nil, nil, nil, nil, nil} -- two for each rule: a string and where its first live tick is, or a ring
local K, at, admitted = byte(spec), 2, true
for r = 1, K do
  local a, b, c, d, e, f, u, v, w, x, y, z, m, n, p, q = byte(spec, at + 1, at + 16)
  local limit = ((((a*256 + b)*256 + c)*256 + d)*256 + e)*256 + f
  local window = ((((u*256 + v)*256 + w)*256 + x)*256 + y)*256 + z
  local head = sub(spec, at + 17, at + 16 + p*256 + q)
  local width, modulus, upto = 4, 4294967296, '527'
  if window >= 4294967296 then width, modulus, upto = 6, 281474976710656, '783' end
  at = at + 17 + p*256 + q
  c, d, e, f, u, v = byte(blob, 8*r - 5, 8*r)
  local cost = ((((c*256 + d)*256 + e)*256 + f)*256 + u)*256 + v
  local value = pcall('GETRANGE', keys[r], '0', upto)
  local size, live, soonest, latest = #value, 0, 0, 0
  local form = size >= 30 and byte(value, 1)
  if size == 0 then
    if value ~= '' then return {now, 0, number} end -- the table of an error
  elseif form == RING_SHORT or form == RING_LONG then
    local c, d, e, l, m, n, s, t, u, v, w, x, y, g, h, i, j, k, o, p = byte(value, 11, 30)
    local oldest = (((((s*256 + t)*256 + u)*256 + v)*256 + w)*256 + x)*256 + y
    local newest = (((((g*256 + h)*256 + i)*256 + j)*256 + k)*256 + o)*256 + p
    live = (l*256 + m)*256 + n
    local ring = {
      key = keys[r], width = width, size = limit, cursor = (c*256 + d)*256 + e, live = live,
      slots = '', from = 0, oldest = oldest, newest = newest, window = window,
    }
    if newest > now or limit <= STRING_MOST or sub(value, 2, 10) ~= sub(head, 2) or (form == RING_SHORT) ~= (width == 4) or
      live > limit or ring.cursor >= limit then return {now, 0, number} end
    latest = window - (now - newest)
    if latest <= 0 then
      live, latest = 0, 0
    elseif now - oldest >= window then -- most often, few units have left
      local from, width, tick, n = (ring.cursor - live) % limit, ring.width, newest % modulus, 0
      local stop = from + 10 < limit and from + 10 or limit
      local slots, age = call('GETRANGE', keys[r], format('%d', 30 + from*width), format('%d', 29 + stop*width)), nil
      repeat
        n = n + 1
        if n == live or (n + 1)*width > #slots then break end
        local a, b, c, d, e, f = byte(slots, n*width + 1, n*width + width)
        age = ((a*256 + b)*256 + c)*256 + d
        if width == 6 then age = (age*256 + e)*256 + f end
        age = (tick - age) % modulus
      until age < latest
      if age and age < latest then
        ring.live, ring.oldest = live - n, newest - age
      else
        expire(ring, now - window)
      end
      live = ring.live
    end
    ring.live = live
    if live > 0 then soonest = window - (now - ring.oldest) end
    logs[2*r - 1] = ring
  else
    local first, last, tick, newest = #head + 1, size - 6, nil, nil
    if last < first or (last - first) % width ~= 0 or sub(value, 1, first - 1) ~= head then return {now, 0, number} end
    local a, b, c, d, e, f, g = byte(value, last, last + 6)
    if width == 4 then
      tick = ((a*256 + b)*256 + c)*256 + d
      newest = ((e*256 + f)*256 + g)*4294967296 + tick
    else
      tick = ((((a*256 + b)*256 + c)*256 + d)*256 + e)*256 + f
      newest = g*281474976710656 + tick
    end
    if newest > now then return {now, 0, number} end
    local span = window - (now - newest) -- a unit is live while it is less than this older than the newest
    if span > 0 then
      local i, age = first - width, nil
      repeat
        i = i + width
        if i == first + 8*width then i = first + count_until(sub(value, first, width - 8), width, newest, newest - span)*width end
        a, b, c, d, e, f = byte(value, i, i + width - 1)
        age = ((a*256 + b)*256 + c)*256 + d
        if width == 6 then age = (age*256 + e)*256 + f end
        age = (tick - age) % modulus
      until age < span
      live, soonest, latest = (last - i) / width + 1, span - age, span
      logs[2*r - 1], logs[2*r] = value, i
    end
  end
  if cost > limit - live and cost > 0 then admitted = false end
  out[3*r], out[3*r + 1], out[3*r + 2] = limit - live, soonest, latest
end

local x = now
local g = x % 256; x = (x - g) / 256
local f = x % 256; x = (x - f) / 256
local e = x % 256; x = (x - e) / 256
local d = x % 256; x = (x - d) / 256
local c = x % 256; x = (x - c) / 256
local b = x % 256
local a = (x - b) / 256
if not admitted then out[2] = 0 end
at = 2
for r = 1, K do
  local b1, b2, b3, b4, b5, b6, u, v, w, x, y, z, m, n, p, q = byte(spec, at + 1, at + 16)
  local limit = ((((b1*256 + b2)*256 + b3)*256 + b4)*256 + b5)*256 + b6
  local window = ((((u*256 + v)*256 + w)*256 + x)*256 + y)*256 + z
  local first, width, left, value, from = p*256 + q + 1, 4, out[3*r], logs[2*r - 1], logs[2*r]
  if window >= 4294967296 then width = 6 end
  at = at + 16 + first
  b1, b2, b3, b4, b5, b6 = byte(blob, 8*r - 5, 8*r)
  local cost = ((((b1*256 + b2)*256 + b3)*256 + b4)*256 + b5)*256 + b6
  if cost == 0 then -- it only looks
  elseif not admitted then
    local shown = left > 0 and left or 0
    out[3*r] = shown
    if cost > limit then
      out[3*r + 1] = -1
    elseif cost > left and cost - shown > 1 then -- the oldest units must leave, as many as are lacking
      n = cost - left
      if value and not from then
        out[3*r + 1] = n > value.live and window or time_at(value, n - 1) + window - now
      elseif value and from + (n - 1)*width <= #value - 6 then
        local newest, last = out[3*r + 2], from + (n - 1)*width
        -- by what the newest is later
        local tick, oldest = u32(value, #value - 6), u32(value, last)
        if width == 6 then tick, oldest = u48(value, #value - 6), u48(value, last) end
        out[3*r + 1] = newest - (tick - oldest) % (width == 4 and 4294967296 or 281474976710656)
      else
        out[3*r + 1] = window
      end
    end
  else
    local ticks = width == 4 and char(d, e, f, g) or char(b, c, d, e, f, g)
    if cost > 1 then ticks = rep(ticks, cost) end
    ticks = ticks .. (width == 4 and char(a, b, c) or char(a))
    if value and not from and value.live + cost >= RING_LEAST then
      write_ring(value, cost, now, char(a, b, c, d, e, f, g), grace)
    elseif (from or not value) and limit - left + cost <= STRING_MOST then
      if from == first then
        value = sub(value, 1, width - 8)
      else
        value = sub(spec, at - first + 1, at - 1) .. (from and sub(value, from, width - 8) or '')
      end
      call('PSETEX', keys[r], format(width == 4 and '%d' or '%.0f', ceil(window / 1000) + grace), value .. ticks) -- %d is faster, and of 32 bits on some servers
    else
      if from or not value then
        value = {width = width, slots = from and sub(value, from, width - 8) or '', limit = limit, window = window}
      end
      write_anew(keys[r], value, cost, now, grace)
    end
    if left == limit then out[3*r + 1] = window end
    out[3*r], out[3*r + 2] = left - cost, window
  end
end
out[3*K + 3] = number
return out
