-- Takes a batch of decisions on one policy. Each is admitted only if every rule
-- has room, and otherwise changes nothing but rules that decide alone; they are
-- decided in order, on one clock reading, and see each other. Everything is read and checked before the
-- first write, and each key is read and written once.
--
-- KEYS      every key once, grouped by rule in the order of the rules; in a
--           cluster all in one slot
-- ARGV[1]   now in us since the epoch; '' for the time of Redis, as always but in tests
-- ARGV[2]   the time of Redis after which the call does nothing, or 0: its caller has left then
-- ARGV[3]   ms that each key outlives its last unit
-- ARGV[4]   K, the number of rules, then for each of them:
--           algorithm (its number in package core), limit, window in us, number
--           of its keys, and its parameters (see the file of the algorithm)
-- ARGV[#]   the decisions, each K times: index in KEYS:2, cost:6, big-endian
-- ARGV[#]   for lines with @extra only, K times: 1 if the rule decides alone, or 0:1,
--           the units that it must leave to others:6
-- ARGV[#]   the number of the call, if the reply is to have it
-- reply     integers: now in us, then for each decision its verdict
--           (0 refused, -1 undecided, otherwise admitted and one more than the
--           us that it must wait) and for each rule three:
--             remaining; us until the cost fits if it does not (-1: never), or
--             else until remaining grows; us until the quota is full.
--           Where the cost does not say what a charge needs, the first is -1 for
--           0 if the charge does not fit.
--           If a decision is undecided, the first of the three says what is wrong
--           with the key: 0 nothing, 1 a value of another type, 2 a value that no
--           script wrote, 3 that the time of Redis is in none of the calendar
--           periods sent. The second of a rule that decides alone and was not taken
--           is -1 less than that, if the cost can fit at all. The last integer is the
--           number of the call.
--           A call that comes after its deadline has the first and the last only.
--
-- Lines that end in @extra are left out unless a rule decides alone or leaves units
-- to others.

local now, deadline, grace, K = argv[1], argv[2] + 0, argv[3] + 0, argv[4] + 0 -- + 0 costs half of tonumber
if now ~= '' then
  now = now + 0
else
  local t = call('TIME')
  now = t[1]*1000000 + t[2]
  if now > deadline and deadline > 0 then return {now, tonumber(argv[#argv])} end
end

local rules, last = {nil, nil, nil, nil}, 0
for r = 1, K do
  local limit, window, count, params = argv[5*r + 1] + 0, argv[5*r + 2] + 0, argv[5*r + 3] + 0, argv[5*r + 4]
  local rule = {
    as = algorithms[argv[5*r] + 0], limit = limit, window = window, first = last + 1, last = last + count,
    capacity = limit, short = window < 4294967296, stride = 8*K,
  }
  if rule.as.prepare then rule.as.prepare(rule, params) end -- @each
  rule.as.load(rule, now) -- @each
  rule.alone, rule.reserve = byte(argv[5*K + 6], 7*r - 6) == 1, u48(argv[5*K + 6], 7*r - 5) -- @extra
  rules[r], last = rule, rule.last
end

local out, o = {now, nil, nil, nil, nil, nil, nil, nil, nil}, 1
local blob, at = argv[5*K + 5], 1
local mine, costs = {nil, nil, nil, nil}, {nil, nil, nil, nil} -- of a decision: the key of each rule, and the cost
while at < #blob do
  local verdict, barred = 1, false -- and whether a ban refuses
  for r = 1, K do
    local a, b, c, d, e, f, g, h = byte(blob, at, at + 7)
    local k, cost, rule = a*256 + b, ((((c*256 + d)*256 + e)*256 + f)*256 + g)*256 + h, rules[r]
    mine[r], costs[r], at = k, cost, at + 8
    if rule.as.need then rule.as.need(rule, k, cost, at) end -- @each
    local need = needs[k] or cost
    if need > 0 then need = need + rule.reserve end -- @extra
    if problem[k] then
      verdict = -1
    elseif rule.alone then -- @extra
    elseif need > room[k] and verdict >= 0 and need > 0 then
      verdict, barred = 0, barred or rule.bars
    end
  end
  o = o + 1
  local place = o
  for r = 1, K do
    local k, cost, rule = mine[r], costs[r], rules[r]
    local others = verdict -- @extra
    if rule.alone and verdict >= 0 then verdict = (cost == 0 or cost + rule.reserve <= room[k]) and 1 or 0 end -- @extra
    if verdict == -1 then
      out[o + 1], out[o + 2], out[o + 3] = problem[k] or 0, 0, 0
    else
      if verdict >= 1 and cost > 0 then
        rule.as.take(rule, k, cost, at) -- @each
        if delays[k] and delays[k] >= verdict then verdict = delays[k] + 1 end
      end
      local need = verdict == 0 and (needs[k] or cost) or 0
      if need > 0 then
        need = need + rule.reserve -- @extra
        if rule.as.refuse then rule.as.refuse(rule, k, barred) end -- @each
      end
      local left, wait = room[k], more[k]
      local shown = left > 0 and left or 0
      if need > left and need > 0 then
        wait = -1
        if need <= rule.capacity then
          wait = rule.as.after(rule, k, need - left, now) -- @each
        end
        if needs[k] and shown == 0 then shown = -1 end
        if rule.alone and wait > 0 then wait = -1 - wait end -- @extra
      end
      out[o + 1], out[o + 2], out[o + 3] = shown, wait, reset[k]
    end
    if rule.alone then verdict = others end -- @extra
    o = o + 3
  end
  out[place] = verdict
end

local stamp = be56(now)
for r = 1, K do
  local rule = rules[r]
  rule.as.save(rule, now, stamp, grace) -- @each
end
out[o + 1] = tonumber(argv[#argv])
return out
