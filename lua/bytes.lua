-- Numbers as big-endian bytes. Lua 5.1 counts in doubles, exact to 2^53, and
-- these functions are straight lines because loops cost a tenth of the script.

local byte, char, rep, sub, ceil = string.byte, string.char, string.rep, string.sub, math.ceil

local function u24(s, i)
  local a, b, c = byte(s, i, i + 2)
  return (a*256 + b)*256 + c
end
local function u32(s, i)
  local a, b, c, d = byte(s, i, i + 3)
  return ((a*256 + b)*256 + c)*256 + d
end
local function u48(s, i)
  local a, b, c, d, e, f = byte(s, i, i + 5)
  return ((((a*256 + b)*256 + c)*256 + d)*256 + e)*256 + f
end
local function u56(s, i)
  return byte(s, i)*281474976710656 + u48(s, i + 1)
end

local function be24(x)
  local c = x % 256; x = (x - c) / 256
  local b = x % 256
  return char((x - b) / 256, b, c)
end
local function be32(x)
  local d = x % 256; x = (x - d) / 256
  local c = x % 256; x = (x - c) / 256
  local b = x % 256
  return char((x - b) / 256, b, c, d)
end
local function be48(x)
  local low = x % 16777216
  return be24((x - low) / 16777216) .. be24(low)
end
local function be56(x)
  local low = x % 281474976710656
  return char((x - low) / 281474976710656) .. be48(low)
end

-- a*b/c rounded down, and the remainder, of whole numbers that are not negative,
-- b and c at most 366 days of us. The product may be larger than a double is
-- exact; a quotient of 2^52 and more is only that large.
local function muldiv(a, b, c)
  local product = a * b
  if product < 9007199254740992 then
    local rest = product % c
    return (product - rest) / c, rest
  end
  if product / c >= 4503599627370496 then return 9007199254740992, 0 end
  local digits = {}
  repeat
    local digit = a % 128
    digits[#digits + 1] = digit
    a = (a - digit) / 128
  until a == 0
  local quotient, rest = 0, 0
  for i = #digits, 1, -1 do
    local t = rest*128 + digits[i]*b
    rest = t % c
    quotient = quotient*128 + (t - rest) / c
  end
  return quotient, rest
end

-- a/b rounded up or down; a may be negative, b is positive
local function floordiv(a, b) return (a - a % b) / b end
local function ceildiv(a, b) return -floordiv(-a, b) end
