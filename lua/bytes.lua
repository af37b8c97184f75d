-- Numbers as big-endian bytes. Lua 5.1 counts in doubles, exact to 2^53, and
-- these functions are straight lines because loops cost a tenth of the script.

local byte, char, rep, sub, ceil = string.byte, string.char, string.rep, string.sub, math.ceil
local call = redis.call
local keys, argv = KEYS, ARGV

-- @rare without state.lua
local function u24(s, i)
  local a, b, c = byte(s, i, i + 2)
  return (a*256 + b)*256 + c
end
-- @rare without state.lua
local function u32(s, i)
  local a, b, c, d = byte(s, i, i + 3)
  return ((a*256 + b)*256 + c)*256 + d
end
-- @rare without state.lua
local function u48(s, i)
  local a, b, c, d, e, f = byte(s, i, i + 5)
  return ((((a*256 + b)*256 + c)*256 + d)*256 + e)*256 + f
end
-- @rare without state.lua
local function u56(s, i)
  local a, b, c, d, e, f, g = byte(s, i, i + 6)
  return (((((a*256 + b)*256 + c)*256 + d)*256 + e)*256 + f)*256 + g
end

-- @rare
-- rep for any number: string.rep takes 20 ns for each, however short it is
local function rep_many(s, n)
  if n < 1000 then return rep(s, n) end
  local rest = n % 1000
  return rep(rep(s, 1000), (n - rest) / 1000) .. rep(s, rest)
end

-- @rare without state.lua
local function be24(x)
  local c = x % 256; x = (x - c) / 256
  local b = x % 256
  return char((x - b) / 256, b, c)
end
-- @rare without state.lua
local function be56(x)
  local g = x % 256; x = (x - g) / 256
  local f = x % 256; x = (x - f) / 256
  local e = x % 256; x = (x - e) / 256
  local d = x % 256; x = (x - d) / 256
  local c = x % 256; x = (x - c) / 256
  local b = x % 256
  return char((x - b) / 256, b, c, d, e, f, g)
end
