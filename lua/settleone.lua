-- Settles holds that are in strings, see held.lua, of different keys: settle.lua for the usual
-- call, where each gives units back. KEYS, ARGV and the reply are those of settle.lua.
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
local pcall, format, find, first = redis.pcall, string.format, string.find, #keys - 2*K
local out = {nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil}
local states, lives, holds = {nil, nil, nil, nil}, {nil, nil, nil, nil}, {nil, nil, nil, nil} -- what is to be written
local backs, others, gone -- what is to be remembered of buckets, and which keys are to be deleted
local helds, ttl, ttl_text = call('MGET', unpack(keys, first + 1, first + K)), nil, nil
for s = 1, K do
  local list, held = argv[6 + 2*s], helds[s]
  local place, units = nil, 0
  if held then
    if byte(held) ~= 72 or (#held - 17) % 94 ~= 0 then return end
    place = find(held, sub(list, 53, 76), 18, true)
  elseif call('EXISTS', keys[first + s]) == 1 then -- of another type
    return
  end
  if place then
    local how, cost, at, took = byte(list, 52), sub(list, 77) + 0, tonumber(sub(held, place + 41, place + 56)), nil
    local state, k, l = byte(held, place + 24), byte(list, 16, 17)
    local a, b, c, d, e, f = byte(held, place + 57, place + 62)
    took = ((((a*256 + b)*256 + c)*256 + d)*256 + e)*256 + f
    if state ~= 76 and state ~= 75 or (place - 18) % 94 ~= 0 or took < cost then return end
    local t, u, v, w, x, y, z = byte(list, 24, 30)
    if (((((t*256 + u)*256 + v)*256 + w)*256 + x)*256 + y)*256 + z ~= at then return end -- the caller does not know it, or another
    k, units = k*256 + l, took - cost
    if units > 0 then
      a, b, c, d, e, f, u, v, w, x, y, z = byte(list, 4, 15)
      local window = ((((u*256 + v)*256 + w)*256 + x)*256 + y)*256 + z
      local rule = { -- and room for what prepare adds
        limit = ((((a*256 + b)*256 + c)*256 + d)*256 + e)*256 + f, window = window, short = window < 4294967296, alone = false,
        list = list, i = 16, cost = units, at = at, k = k, head = nil, upto = nil,
        as = algorithms[byte(list)], -- @sole
      }
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
        if units > 0 then states[s] = rest end
        if write then
          lives[s] = life
        elseif rest ~= '' then
          life = ceil(life / 1000) + grace
          lives[s] = long and life or -life
        end
        if back then
          backs, others = backs or {}, others or {}
          backs[s], others[s] = back, format('%.0f', ceil(other / 1000) + grace)
        end
      end
    end
    if how == 50 or cost == 0 then
      held = #held > 111 and sub(held, 1, place - 1) .. sub(held, place + 94)
    else
      local first, stop = sub(held, 2, 17), format('%16.0f', now + 1000*memory)
      if stop < first then first = stop end
      held = 'H' .. first .. sub(held, 18, place + 23) .. 'S' .. stop .. sub(held, place + 41, place + 56) .. be48(cost) .. sub(held, place + 63)
    end
    holds[s] = held
  end
  out[4*s - 3], out[4*s - 2], out[4*s - 1], out[4*s] = place and 1 or 0, units, 0, 0
end

for s = 1, K do
  local state, held, life = states[s], holds[s], lives[s]
  if state then
    local list = argv[6 + 2*s]
    local k, l = byte(list, 16, 17)
    k = k*256 + l
    if not life then
      call('DEL', keys[k])
    elseif type(life) == 'function' then
      life()
    elseif life < 0 and call('PTTL', keys[k]) > -life then
      call('SET', keys[k], state, 'KEEPTTL')
    else
      if life < 0 then life = -life end
      if life ~= ttl then ttl, ttl_text = life, format('%.0f', life) end
      call('PSETEX', keys[k], ttl_text, state)
    end
    if backs and backs[s] then call('PSETEX', keys[k + 1], others[s], backs[s]) end
  end
  if held then
    local least = memory + grace -- for one that has ended
    if call('PTTL', keys[first + s]) > least then
      call('SET', keys[first + s], held, 'KEEPTTL')
    else
      call('PSETEX', keys[first + s], format('%d', least), held)
    end
  elseif held == false then
    gone = gone or {}
    gone[#gone + 1] = keys[first + s]
  end
end
if gone then call('DEL', unpack(gone)) end
return out
