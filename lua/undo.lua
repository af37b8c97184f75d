-- The beginning of returnone.lua. It gives back the units of one admission if the key has no others,
-- or is a log of which they are the newest: the usual keys of clients that are refused again and
-- again. It comes before the functions, since defining them takes a script as long as this.

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
if #list == 51 and size and size > 0 and cost > 0 and since >= 0 and since < window then
  local stamp = sub(list, 24, 30)
  if kind == 0 then -- a log: see logforms.lua
    local from, modulus = 4, 4294967296
    if window >= modulus then from, modulus = 2, 281474976710656 end
    local width, head = 8 - from, #params
    local left = size - head - cost*width - from + 1 -- bytes of other units
    local units = left / width
    if left >= 0 and left % width == 0 and units + cost <= 128 and units + cost <= limit and sub(value, 1, head) == params and
      sub(value, head + left + 1) == rep(sub(stamp, from), cost) .. sub(stamp, 1, from - 1) then
      if left == 0 then
        given = cost
      else -- most often the others are before it, and all count
        local tick = (now - since) % modulus
        local function age(i)
          local a, b, c, d, e, f = byte(value, i, i + width - 1)
          local n = ((a*256 + b)*256 + c)*256 + d
          if width == 6 then n = (n*256 + e)*256 + f end
          return since + (tick - n) % modulus
        end
        local oldest, newest = age(head + 1), age(head + left - width + 1)
        if oldest < window and newest - since <= tick then -- otherwise the bytes above change
          local life = math.ceil(window / 1000) + ARGV[2]
          call('PSETEX', key, string.format('%.0f', life), sub(value, 1, head + left) .. sub(stamp, 1, from - 1))
          return {cost, limit - units, window - oldest, window - newest}
        end
      end
    end
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
    local a, b, c, d, e, f = byte(list, 31, 36) -- what was left then; units of others are to be remembered
    if came < 9007199254740992 and (((((a*256 + b)*256 + c)*256 + d)*256 + e)*256 + f) + cost == string.match(params, '%d+') + 0 and
      not pcall('GET', KEYS[2]) then given = cost - (came - came % window)/window end
  end
  if given > 0 then
    call('DEL', key)
    return {given}
  end
end
