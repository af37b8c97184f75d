-- Gives units of one admitted charge back to one key: return.lua for the usual call, without
-- tables for each key, and at three quarters of its instructions. KEYS, ARGV and the reply are
-- those of return.lua with a single return.
--
-- It has give_back of one algorithm, without the lines that end in @batch or @many. What these
-- are for, and a return that changes nothing, it leaves to return.lua: the reply is empty, and
-- nothing has been written.

local now, params, list = argv[1], argv[3], argv[4]
if now ~= '' then
  now = now + 0
else
  local t = call('TIME')
  now = t[1]*1000000 + t[2]
end
local d, e, f, g, h, i, u, v, w, x, y, z = byte(list, 4, 15)
local c1, c2, c3, c4, c5, c6, t1, t2, t3, t4, t5, t6, t7 = byte(list, 18, 30)
local window = ((((u*256 + v)*256 + w)*256 + x)*256 + y)*256 + z
local rule = { -- and room for what prepare adds
  limit = ((((d*256 + e)*256 + f)*256 + g)*256 + h)*256 + i, window = window, short = window < 4294967296, alone = true, list = list, i = 16,
  cost = ((((c1*256 + c2)*256 + c3)*256 + c4)*256 + c5)*256 + c6, at = (((((t1*256 + t2)*256 + t3)*256 + t4)*256 + t5)*256 + t6)*256 + t7,
  head = nil, upto = nil,
  as = algorithms[byte(list)], -- @sole
}
if rule.as.prepare then rule.as.prepare(rule, params) end -- @each
local pcall, key, returned = redis.pcall, keys[1], keys[2]
local value = rule.upto and pcall('GETRANGE', key, '0', rule.upto) or pcall('GET', key)
local remembered = returned and pcall('GET', returned)
if not value or value == '' or type(value) == 'table' or type(remembered) == 'table' then return {} end

local given, rest, life, long, memory, other, free, wait, full = rule.as.give_back(value, rule, now, remembered)
if not given or given == 0 or not free and rest ~= '' then return {} end
local grace, format = argv[2], string.format
if rest == '' then
  call('DEL', key)
  free, wait, full = rule.burst or rule.limit, 0, 0
else
  life = ceil(life / 1000) + grace
  if not long and call('PTTL', key) > life then
    call('SET', key, rest, 'KEEPTTL')
  else
    call('PSETEX', key, format('%d', life), rest)
  end
end
if memory then call('PSETEX', returned, format('%d', ceil(other / 1000) + grace), memory) end
return {given, free > 0 and free or 0, wait, full}
