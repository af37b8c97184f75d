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
