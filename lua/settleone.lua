-- Settles holds that are in strings, see held.lua, of different keys: settle.lua for the usual
-- call, where each gives units back. KEYS and ARGV are those of settle.lua. The reply is for each
-- the units that came back, or -1 if there is no such hold.
--
-- It has give_back of the algorithms without the lines that end in @batch or @many, as
-- returnone.lua has. All else it leaves to settle.lua: it then returns nothing, and nothing has
-- been written.

local now, grace, memory, K = argv[1], argv[2] + 0, argv[3] + 0, argv[5] / 2
if now ~= '' then
  now = now + 0
else
  local t = call('TIME')
  now = t[1]*1000000 + t[2]
end
local pcall, first, n, stop = redis.pcall, #keys - 2*K, 0, nil
local out, gone = {nil, nil, nil, nil}, {nil, nil, nil, nil}
-- for each n a key, its value, and for how many ms it lives at least, 0 if it does for long enough;
-- below 0 for how many exactly; or a function that writes it
local writes = {nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil}
local rule = { -- of one settlement after the other, and room for what prepare adds
  limit = 0, window = 0, short = false, list = '', i = 16, cost = 0, at = 0, k = 0, head = nil, upto = nil,
  as = nil, -- @sole
}
local helds = call('MGET', unpack(keys, first + 1, first + K))
for s = 1, K do
  local list, held, units = argv[6 + 2*s], helds[s], -1
  local place = held and string.find(held, sub(list, 53), 18, true)
  if held then
    if byte(held) ~= 72 or (#held - 17) % 94 ~= 0 then return end
  elseif call('EXISTS', keys[first + s]) == 1 then -- of another type
    return
  end
  if place then
    local a, b, c, d, e, f, u, v, w, x, y, z, k, l, c1, c2, c3, c4, c5, c6, t1, t2, t3, t4, t5, t6, t7 = byte(list, 4, 30)
    local cost = ((((c1*256 + c2)*256 + c3)*256 + c4)*256 + c5)*256 + c6
    local at = (((((t1*256 + t2)*256 + t3)*256 + t4)*256 + t5)*256 + t6)*256 + t7
    c1, c2, c3, c4, c5, c6 = byte(held, place + 57, place + 62)
    units = ((((c1*256 + c2)*256 + c3)*256 + c4)*256 + c5)*256 + c6 - cost
    local state = byte(held, place + 24)
    if state ~= 76 and state ~= 75 or (place - 18) % 94 ~= 0 or units < 0 then return end
    if sub(held, place + 41, place + 56) + 0 ~= at then return end -- the caller does not know it, or another
    if units > 0 then
      k = k*256 + l
      rule.limit, rule.window = ((((a*256 + b)*256 + c)*256 + d)*256 + e)*256 + f, ((((u*256 + v)*256 + w)*256 + x)*256 + y)*256 + z
      rule.short, rule.list, rule.cost, rule.at, rule.k, rule.upto = rule.window < 4294967296, list, units, at, k, nil
      rule.as = algorithms[byte(list)] -- @sole
      if rule.as.prepare then rule.as.prepare(rule, argv[5 + 2*s]) end -- @each
      local value, returned = rule.upto and pcall('GETRANGE', keys[k], '0', rule.upto) or pcall('GET', keys[k]), rule.as.returned and pcall('GET', keys[k + 1])
      if not value or value == '' and rule.upto and call('EXISTS', keys[k]) == 0 then
        units = 0
      elseif value == '' or type(value) == 'table' or type(returned) == 'table' then
        return
      else
        local rest, life, long, back, other, free
        units, rest, life, long, back, other, free = rule.as.give_back(value, rule, now, returned)
        local write = type(life) == 'function' -- a ring is changed where it is
        if not units or rest ~= '' and not free and not write then return end -- maybe, the value is ahead of now
        if units > 0 and rest == '' then
          gone[#gone + 1] = keys[k]
        elseif units > 0 then
          writes[n + 1], writes[n + 2], writes[n + 3] = keys[k], rest, write and life or long and 0 or ceil(life / 1000) + grace
          n = n + 3
        end
        if back and units > 0 then
          writes[n + 1], writes[n + 2], writes[n + 3] = keys[k + 1], back, -ceil(other / 1000) - grace
          n = n + 3
        end
      end
    end
    local forget = byte(list, 52) == 50 or cost == 0
    if forget and #held == 111 then
      gone[#gone + 1] = keys[first + s]
    else
      if forget then
        held = sub(held, 1, place - 1) .. sub(held, place + 94)
      else
        stop = stop or string.format('%16.0f', now + 1000*memory)
        local soonest = sub(held, 2, 17)
        if stop < soonest then soonest = stop end
        held = 'H' .. soonest .. sub(held, 18, place + 23) .. 'S' .. stop .. sub(held, place + 41, place + 56) .. be48(cost) .. sub(held, place + 63)
      end
      writes[n + 1], writes[n + 2], writes[n + 3] = keys[first + s], held, memory + grace
      n = n + 3
    end
  end
  out[s] = units
end

for i = 1, n, 3 do
  local key, value, least = writes[i], writes[i + 1], writes[i + 2]
  if type(least) == 'function' then
    least()
  elseif least == 0 or least > 0 and call('PTTL', key) > least then
    call('SET', key, value, 'KEEPTTL')
  else
    call('PSETEX', key, string.format('%.0f', least > 0 and least or -least), value)
  end
end
if #gone > 0 then call('DEL', unpack(gone)) end
return out
