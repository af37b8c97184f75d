-- What the algorithms with a small state share.
--
-- @needs be48.lua

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

-- @rare
-- units that a bucket or queue may lack, debts included: what comes back in ten years,
-- but at least its capacity
local function owed_most(rule, capacity)
  local most = muldiv(316224000000000, rule.limit, rule.window)
  if most > 281474976710655 then most = 281474976710655 end
  return most > capacity and most or capacity
end

-- An algorithm with a small state, one value for each key, has these functions.
-- The state that decode makes has room, more and reset, as the columns of
-- state.lua.
--
--   decode(value, rule, now)   the state; or nil and what is wrong with the value
--   step(s, n)                 takes n units that fit
--   later(s, n)                in how many us n units more fit
--   encode(s, stamp)           the value, and the us that it matters; stamp is now, 7 bytes
local states = {}

local function show(k, s)
  room[k], more[k], reset[k] = s.room, s.more, s.reset
  if s.redated then redated[k] = true end
end

local function load_small(rule, now)
  local got, decode = values_of(rule), rule.as.decode
  for k = rule.first, rule.last do
    local s, wrong = decode(got[k - rule.first + 1], rule, now)
    taken[k], room[k], more[k], reset[k] = 0, 0, 0, 0
    if s then
      states[k] = s
      show(k, s)
    elseif not problem[k] then
      problem[k] = wrong or WRONG_VALUE
    end
  end
end

local function take_small(rule, k, n)
  local s = states[k]
  taken[k] = taken[k] + n
  rule.as.step(s, n)
  show(k, s)
  delays[k] = s.delay_taken
end

local function after_small(rule, k, n) return rule.as.later(states[k], n) end

local function save_small(rule, now, stamp, grace)
  for k = rule.first, rule.last do
    if not problem[k] and (taken[k] > 0 or redated[k]) then
      local value, life = rule.as.encode(states[k], stamp)
      call('PSETEX', keys[k], string.format('%.0f', ceil(life / 1000) + grace), value)
    end
  end
end

-- an algorithm with a small state, of these functions and those of state.lua
local function small(decode, step, later, encode)
  return {
    load = load_small, take = take_small, after = after_small, save = save_small, -- @take
    decode = decode, step = step, later = later, encode = encode,
  }
end
