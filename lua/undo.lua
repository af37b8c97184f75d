-- The beginning of returnone.lua. If a key has the units of one admission and no others, as that of
-- a client that is refused again and again has, they are given back here: before the functions,
-- since a script takes as long to define them as it takes for this.

local byte, rep, sub, call, pcall = string.byte, string.rep, string.sub, redis.call, redis.pcall
local now, params, list, key = ARGV[1], ARGV[3], ARGV[4], KEYS[1]
if now ~= '' then
  now = now + 0
else
  local t = call('TIME')
  now = t[1]*1000000 + t[2]
end
local kind, _, _, d, e, f, g, h, i, u, v, w, x, y, z, _, _, c1, c2, c3, c4, c5, c6, t1, t2, t3, t4, t5, t6, t7 = byte(list, 1, 30)
local limit = ((((d*256 + e)*256 + f)*256 + g)*256 + h)*256 + i
local window = ((((u*256 + v)*256 + w)*256 + x)*256 + y)*256 + z
local cost = ((((c1*256 + c2)*256 + c3)*256 + c4)*256 + c5)*256 + c6
local since = now - ((((((t1*256 + t2)*256 + t3)*256 + t4)*256 + t5)*256 + t6)*256 + t7)
local value = kind == 0 and pcall('GETRANGE', key, '0', window < 4294967296 and '527' or '783') or kind ~= 0 and pcall('GET', key)

local given, size = 0, value and #value -- 0 also of the table of an error
if #list == 51 and size and size > 0 and since >= 0 and since < window then
  local stamp = sub(list, 24, 30)
  if kind == 0 then -- a log: see logforms.lua
    local from = window < 4294967296 and 4 or 2
    if size == #params + cost*(8 - from) + from - 1 and value == params .. rep(sub(stamp, from), cost) .. sub(stamp, 1, from - 1) then given = cost end
  elseif kind == 1 then
    if size == 27 and sub(value, 15) == sub(list, 18, 30) and sub(value, 1, 7) == sub(params, 1, 7) then
      local a, b, c, d, e, f, g = byte(value, 8, 14)
      if now < (((((a*256 + b)*256 + c)*256 + d)*256 + e)*256 + f)*256 + g then given = cost end
    end
  elseif kind == 2 then
    local a, b, c, d, e, f, g = byte(value, 9, 15)
    if size == 21 + 6*params and sub(value, 1, 8) == 'v' .. stamp and sub(value, 16) == sub(list, 18, 23) .. rep('\0', 6*params) and
      ((((((a*256 + b)*256 + c)*256 + d)*256 + e)*256 + f)*256 + g - 1)*params < window and
      ((((((a*256 + b)*256 + c)*256 + d)*256 + e)*256 + f)*256 + g)*params >= window then given = cost end
  elseif kind == 3 then
    if value == 'w' .. stamp .. sub(list, 18, 23) .. '\0\0\0\0\0\0' .. sub(list, 10, 15) then given = cost end
  elseif size == 26 and value == 'h' .. sub(list, 18, 23) .. '\0\0\0\0\0\0' .. stamp .. sub(list, 10, 15) and not string.find(params, ',[1-9]') then
    local came = since*limit
    if came < 9007199254740992 and not pcall('GET', KEYS[2]) then given = cost - (came - came % window)/window end
  end
  if given > 0 then
    call('DEL', key)
    return {given}
  end
end
