-- Decides the usual call on keys that several algorithms charge, in half of the time that the whole
-- script takes: take.lua with tallies.lua. KEYS, ARGV and the reply are those of that script.
--
-- It leaves a call to the function whole, which is that script, if a key needs more care: a tally
-- comes or goes or has another quota, the clock has stepped back, or a value has a rare form.
-- Nothing has been written then.

local now, deadline, grace, spec, blob, list = argv[1], argv[2] + 0, argv[3] + 0, argv[4], argv[5], argv[6]
if now ~= '' then
  now = now + 0
else
  local t = call('TIME')
  now = t[1]*1000000 + t[2]
  if now > deadline and deadline > 0 then return {now, tonumber(argv[#argv])} end
end

local time_of, times = be56, nil -- of many keys, most have times in common
if #keys > 3 then
  times = {}
  time_of = function(x)
    local s = times[x]
    if not s then
      s = be56(x)
      times[x] = s
    end
    return s
  end
end

local rules, states = {nil, nil, nil, nil}, {nil, nil, nil, nil}
local tallied = {nil, nil, nil, nil} -- by key with tallies, its value, and of each tally: its place, the first and last of its value, its quota
local K, last, at, place = byte(spec), 0, 2, 1
for r = 1, K do
  local kind, a, b, c, d, e, f, u, v, w, x, y, z, m, n, p, q = byte(spec, at, at + 16)
  local limit = ((((a*256 + b)*256 + c)*256 + d)*256 + e)*256 + f
  local window = ((((u*256 + v)*256 + w)*256 + x)*256 + y)*256 + z
  local as, from, part, got = algorithms[kind], last + 1, 1, nil
  last = last + m*256 + n
  local rule = {
    as = as, limit = limit, window = window, first = from, last = last, capacity = limit, short = window < 4294967296, stays = nil,
    head = nil, -- and room for seven more
  }
  if as.prepare then as.prepare(rule, sub(spec, at + 17, at + 16 + p*256 + q)) end
  a, b = byte(list, place, place + 1)
  local own = sub(list, place + 2, place + 1 + a*256 + b)
  place = place + (2 + #own)*(m*256 + n)
  rule.stays = IDLE_TALLY + 2*u56(own, 2)
  rules[r], at = rule, at + 17 + p*256 + q
  if kind == 5 then kind = 4 end
  while from <= last do -- in parts, as slidinglog.lua does
    local to = from + part - 1
    if to > last then to = last end
    if part == 1 then
      local value = redis.pcall('GETRANGE', keys[from], '0', '1023')
      if #value == 1024 or #value == 0 and value ~= '' then return whole() end
      got = {value ~= '' and value}
    else
      got = call('MGET', unpack(keys, from, to))
    end
    local missing = nil
    for k = from, to do
      local value = got[k - from + 1]
      local s
      if value and byte(value, 1) == 121 then -- 'y'
        local total, i, n, t = #value, 2, 2, {value, nil, nil, nil, nil, nil, nil, nil, nil}
        repeat
          local a, b = byte(value, i + 21, i + 22)
          local size = b and a*256 + b or 0
          local c, d, e = byte(value, i + 23 + size, i + 25 + size)
          local first = i + 26 + size
          local stop = e and first + (c*256 + d)*256 + e - 1 or total
          if not e or stop > total then return whole() end
          local head = sub(value, i + 23, i + 22 + size)
          if head == own then
            s = as.decode(stop >= first and sub(value, first, stop), rule, now)
            t[n], t[n + 1], t[n + 2], t[n + 3] = i, first, stop, rule
          else
            local quota = heads.known[head] or heads.quota_of(head)
            if not quota or not quota.units or quota.algorithm == kind or not algorithms[quota.algorithm] then return whole() end
            t[n], t[n + 1], t[n + 2], t[n + 3] = i, first, stop, quota
          end
          i, n = stop + 1, n + 4
        until i > total
        tallied[k] = t
      else
        s = as.decode(value, rule, now)
        if not value and part > 1 then
          missing = missing or {}
          missing[#missing + 1] = keys[k]
        end
      end
      if not s or s.redated then return whole() end
      states[k] = s
    end
    if missing and call('EXISTS', unpack(missing)) > 0 then return whole() end -- of another type
    from, part = to + 1, part*4
  end
end

local out, o, charged, asked = {now, nil, nil, nil, nil, nil, nil, nil, nil}, 1, {nil, nil, nil, nil}, {nil}
local mine, costs = {nil, nil, nil, nil}, {nil, nil, nil, nil} -- of an ask: the key of each rule, and the cost
at = 1
while at < #blob do
  local verdict = 1
  for r = 1, K do
    local a, b, c, d, e, f, g, h = byte(blob, at, at + 7)
    local k, cost = a*256 + b, ((((c*256 + d)*256 + e)*256 + f)*256 + g)*256 + h
    mine[r], costs[r], at = k, cost, at + 8
    local s = states[k]
    if s.whole then s.reset, s.whole = s.whole, nil end -- see queue.need
    if cost > s.room and cost > 0 then verdict = 0 end
  end
  o = o + 1
  local first = o
  for r = 1, K do
    local k, cost, rule = mine[r], costs[r], rules[r]
    local s = states[k]
    if cost > 0 and verdict > 0 then
      rule.as.step(s, cost)
      charged[k] = (charged[k] or 0) + cost
      if s.delay_taken and s.delay_taken >= verdict then verdict = s.delay_taken + 1 end
    elseif cost > 0 then
      asked[k] = true
      if s.new or s.list and not s.mine then return whole() end -- see what refuse does
    end
    local left, wait = s.room, s.more
    local shown = left > 0 and left or 0
    if verdict == 0 and cost > left and cost > 0 then
      if cost > rule.capacity then
        wait = -1
      elseif cost - shown > 1 then -- otherwise, it fits when one unit more does
        wait = rule.as.later(s, cost - left)
      end
    end
    out[o + 1], out[o + 2], out[o + 3] = shown, wait, s.reset
    o = o + 3
  end
  out[first] = verdict
end

local stamp, writes, w, ttl, ttl_text = be56(now), {nil, nil, nil}, 0, nil, nil
for r = 1, K do
  local rule = rules[r]
  for k = rule.first, rule.last do
    local n, t, value, life = charged[k], tallied[k], nil, nil
    if n then
      value, life = rule.as.encode(states[k], stamp)
      if not value then return whole() end
      life = ceil(life / 1000)
    end
    if t and (n or asked[k]) then
      local all, text, matters, i = t[1], 'y', now + rule.stays, 2
      if not t[6] and u56(all, 2) + rule.stays <= now then return whole() end -- of one tally
      repeat
        local at, first, stop, quota = t[i], t[i + 1], t[i + 2], t[i + 3]
        local fresh, ends, stays = value, nil, 0
        if quota ~= rule then
          stays = u56(all, at + 7) + quota.stays
          if stays <= now then return whole() end
          if stays > matters then matters = stays end
        end
        if not n then
          ends = u56(all, at + 14)
          if quota == rule then value = sub(all, 1, at + 6) .. stamp .. sub(all, at + 14) end
        else
          if quota == rule then
            ends = now + life*1000
          else
            if stop < first then return whole() end
            local other = heads.rule_of(quota)
            fresh, ends = other.as.add_units(other, sub(all, first, stop), now, n, stamp)
            if not fresh then return whole() end
            ends = now + ends
          end
          local head, size = sub(all, at + 21, first - 1), #fresh
          if size ~= stop - first + 1 then head = sub(head, 1, -3) .. char((size - size % 256)/256, size % 256) end
          if quota == rule then
            text = text .. sub(all, at, at + 6) .. stamp .. time_of(ends) .. head .. fresh
          else
            text = text .. sub(all, at, at + 13) .. time_of(ends) .. head .. fresh
          end
        end
        if ends > matters then matters = ends end
        i = i + 4
      until not t[i]
      if n then value = text end
      life = matters - now
      if life < 1000 then life = 1000 elseif life > 632448000000000 then life = 632448000000000 end
      life = ceil(life / 1000)
    end
    if value then
      if life ~= ttl then ttl, ttl_text = life, string.format('%.0f', life + grace) end
      writes[w + 1], writes[w + 2], writes[w + 3] = keys[k], ttl_text, value
      w = w + 3
    end
  end
end
for i = 1, w, 3 do call('PSETEX', writes[i], writes[i + 1], writes[i + 2]) end
out[o + 1] = tonumber(argv[#argv])
return out
