-- Gives units back to one key: return.lua for the usual call, without tables for each key, and at
-- three quarters of its instructions. KEYS and ARGV are those of return.lua with returns to a
-- single key, and so is the reply, but it has no outcome if the key is full again.
--
-- It has give_back of one algorithm, without the lines that end in @batch or @many. What these
-- are for, and returns that change nothing, it leaves to return.lua: the reply is empty, and
-- nothing has been written. Undo.lua has read the key.

local rule = { -- and room for what prepare adds
  limit = limit, window = window, short = window < 4294967296, alone = true, list = list, i = 16, cost = cost, at = now - since,
  head = nil, upto = nil,
  as = algorithms[kind], -- @sole
}
if rule.as.prepare then rule.as.prepare(rule, params) end -- @each
local returned = keys[2]
local remembered = returned and pcall('GET', returned)
if not value or size == 0 or type(remembered) == 'table' then return {} end

local out, life, long, memory, other, free, wait, full, changed = {nil, nil, nil, nil}, 0, nil, nil, nil, nil, nil, nil, false
for i = 16, #list, 36 do
  local given = 0
  if i > 16 then
    local a, b, c, d, e, f, g, h, t, u, v, w, x = byte(list, i + 2, i + 14)
    rule.i, rule.cost = i, ((((a*256 + b)*256 + c)*256 + d)*256 + e)*256 + f
    rule.at = (((((g*256 + h)*256 + t)*256 + u)*256 + v)*256 + w)*256 + x
  end
  if value ~= '' then
    local units, rest, matters, longest, keep, keeps, f, w, u = rule.as.give_back(value, rule, now, remembered)
    if not units then return {} end
    if units > 0 then
      given, changed, value, life, long, free, wait, full = units, true, rest, matters, longest, f, w, u
      if keep then memory, other, remembered = keep, keeps, keep end
    end
  end
  out[#out + 1] = given
end
if not changed or not free and value ~= '' then return {} end
local grace, format = argv[2], string.format
if value == '' then
  call('DEL', key)
else
  life = ceil(life / 1000) + grace
  if not long and call('PTTL', key) > life then
    call('SET', key, value, 'KEEPTTL')
  else
    call('PSETEX', key, format('%.0f', life), value)
  end
  out[#out + 1], out[#out + 2], out[#out + 3] = free > 0 and free or 0, wait, full
end
if memory then call('PSETEX', returned, format('%.0f', ceil(other / 1000) + grace), memory) end
return out
