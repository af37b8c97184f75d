-- What the algorithms with a small state share.

local function be48(x)
  local low = x % 16777216
  return be24((x - low) / 16777216) .. be24(low)
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

-- A small state is decoded from its value, stepped and encoded. decode(value,
-- rule, now) makes one that has room, more and reset, as the columns of
-- state.lua; rule.step(s, n) takes n units; rule.later(s, n) tells when n more fit;
-- rule.encode(s) returns the value and the us that it matters.
local small = {}
local states = {}

local function show(k, s)
  room[k], more[k], reset[k] = s.room, s.more, s.reset
  if s.redated then redated[k] = true end
end

function small.load(rule, now)
  local got = values_of(rule)
  for k = rule.first, rule.last do
    local s, wrong = rule.decode(got[k - rule.first + 1], rule, now)
    taken[k], room[k], more[k], reset[k] = 0, 0, 0, 0
    if s then
      states[k] = s
      show(k, s)
    elseif not problem[k] then
      problem[k] = wrong or WRONG_VALUE
    end
  end
end

function small.take(rule, k, n)
  local s = states[k]
  taken[k] = taken[k] + n
  rule.step(s, n)
  show(k, s)
  turn[k] = s.turn
end

function small.after(rule, k, n) return rule.later(states[k], n) end

function small.refuse(rule, k)
  if rule.refused then
    rule.refused(states[k])
    show(k, states[k])
  end
end

function small.save(rule, now, stamp, grace)
  for k = rule.first, rule.last do
    if not problem[k] and (taken[k] > 0 or redated[k]) then
      local value, life = rule.encode(states[k])
      call('SET', keys[k], value, 'PX', tostring(ceil(life / 1000) + grace))
    end
  end
end
