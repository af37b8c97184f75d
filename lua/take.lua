-- Takes a batch of requests, of one ask each or several. An ask is admitted only if
-- every rule of it has room, and otherwise changes nothing; they are decided in order,
-- on one clock reading, and see each other. Everything is read and checked before the
-- first write, and each key is read and written once.
--
-- KEYS      every key once, grouped by rule in the order of the rules; in a
--           cluster all in one slot
-- ARGV[1]   now in us since the epoch; '' for the time of Redis, as always but in tests
-- ARGV[2]   the time of Redis after which the call does nothing, or 0: its caller has left then
-- ARGV[3]   ms that each key outlives its last unit
-- ARGV[4]   the rules: how many there are:1, and of each its algorithm (its number in
--           package core):1, limit:6, window in us:6, number of its keys:2, bytes of its
--           parameters:2, and these (see the file of the algorithm); big-endian. In one
--           string, since each argument costs a lone call as much as ten of these numbers
-- ARGV[5]   the requests, for each charge of each: index in KEYS:2, cost:6, big-endian;
--           of a single ask, the charges are those of the rules in their order
-- ARGV[6]   for lines with @extra only, for each charge of a request: the units that it
--           must leave to others:6
-- ARGV[7]   for lines with @several only, for each ask of a request: the number of its
--           charges:1, and of each the number of its rule:1
-- ARGV[#]   for lines with @tallies only, the heads of the keys: see tallies.lua
-- ARGV[#]   the number of the call, if the reply is to have it
-- reply     integers: now in us, then for each ask its verdict
--           (0 refused, -1 undecided, otherwise admitted and one more than the
--           us that it must wait) and for each charge three:
--             remaining; us until the cost fits if it does not (-1: never), or
--             else until remaining grows; us until the quota is full.
--           Where the cost does not say what a charge needs, the first is -1 for
--           0 if the charge does not fit.
--           If an ask is undecided, the first of the three says what is wrong
--           with the key: 0 nothing, 1 a value of another type, 2 a value that no
--           script wrote, 3 that the time of Redis is in none of the calendar
--           periods sent. Then all asks of its request are undecided. The last
--           integer is the number of the call.
--           A call that comes after its deadline has the first and the last only.
--
-- Lines that end in @extra are left out unless a charge leaves units to others, or
-- there are several asks; those that end in @several unless there are.

local now, deadline, grace, spec = argv[1], argv[2] + 0, argv[3] + 0, argv[4] -- + 0 costs half of tonumber
if now ~= '' then
  now = now + 0
else
  local t = call('TIME')
  now = t[1]*1000000 + t[2]
  if now > deadline and deadline > 0 then return {now, tonumber(argv[#argv])} end
end

tallies.open_all(now, 1) -- @tallies
local rules, K, last, at = {nil, nil, nil, nil}, byte(spec), 0, 2
for r = 1, K do
  local kind, a, b, c, d, e, f, u, v, w, x, y, z, m, n, p, q = byte(spec, at, at + 16)
  local limit = ((((a*256 + b)*256 + c)*256 + d)*256 + e)*256 + f
  local window = ((((u*256 + v)*256 + w)*256 + x)*256 + y)*256 + z
  local params = sub(spec, at + 17, at + 16 + p*256 + q)
  local rule = {
    as = algorithms[kind], limit = limit, window = window, first = last + 1, last = last + m*256 + n,
    capacity = limit, short = window < 4294967296, stride = 8*K,
    head = params, -- the ninth field: room for seven more, or the table would be laid anew
  }
  if rule.as.prepare then rule.as.prepare(rule, params) end -- @each
  rule.as.load(rule, now) -- @each
  rule.stride = 8 -- @several
  rules[r], last, at = rule, rule.last, at + 17 + p*256 + q
end
for k in pairs(problem) do problem[k] = lacking[keys[k]] or problem[k] end -- @tallies
local reserves, base = {}, 0 -- @extra
for i = 1, #argv[6], 6 do reserves[#reserves + 1] = u48(argv[6], i) end -- @extra

local all, asks, turn, broken = rules, {}, 0, false -- @several
do -- @several
  local shape, i = argv[7], 1 -- @several
  while i < #shape do -- @several
    local ask = {} -- @several
    for r = 1, byte(shape, i) do ask[r] = rules[byte(shape, i + r)] end -- @several
    asks[#asks + 1], i = ask, i + 1 + #ask -- @several
  end -- @several
end -- @several

local out, o = {now, nil, nil, nil, nil, nil, nil, nil, nil}, 1
local blob = argv[5]
at = 1
local mine, costs = {nil, nil, nil, nil}, {nil, nil, nil, nil} -- of an ask: the key of each rule, and the cost
while at < #blob do
  base, turn = base + #(asks[turn] or ''), turn % #asks + 1 -- @several
  if turn == 1 then -- @several
    base, broken = 0, false -- @several
    for i = at, at + 8*#reserves - 1, 8 do broken = broken or problem[byte(blob, i)*256 + byte(blob, i + 1)] end -- @several
  end -- @several
  rules, K = asks[turn], #asks[turn] -- @several
  local verdict, barred = 1, false -- and whether a ban refuses
  for r = 1, K do
    local a, b, c, d, e, f, g, h = byte(blob, at, at + 7)
    local k, cost, rule = a*256 + b, ((((c*256 + d)*256 + e)*256 + f)*256 + g)*256 + h, rules[r]
    mine[r], costs[r], at = k, cost, at + 8
    if rule.as.need then rule.as.need(rule, k, cost, at) end -- @each
    local need = needs[k] or cost
    if need > 0 then need = need + reserves[base + r] end -- @extra
    if problem[k] then
      verdict = -1
    elseif need > room[k] and verdict >= 0 and need > 0 then
      verdict, barred = 0, barred or rule.bars
    end
  end
  if broken then verdict = -1 end -- @several
  o = o + 1
  local place = o
  for r = 1, K do
    local k, cost, rule = mine[r], costs[r], rules[r]
    local at = at - 8*(K - r) -- @several
    if verdict == -1 then
      out[o + 1], out[o + 2], out[o + 3] = problem[k] or 0, 0, 0
    else
      if verdict >= 1 and cost > 0 then
        rule.as.take(rule, k, cost, at) -- @each
        if delays[k] and delays[k] >= verdict then verdict = delays[k] + 1 end
      end
      local need = verdict == 0 and (needs[k] or cost) or 0
      if need > 0 then
        asked[k] = true -- @tallies
        need = need + reserves[base + r] -- @extra
        if rule.as.refuse then rule.as.refuse(rule, k, barred) end -- @each
      end
      local left, wait = room[k], more[k]
      local shown = left > 0 and left or 0
      if need > left and need > 0 then
        if need > rule.capacity then
          wait = -1
        elseif need - shown > 1 then -- otherwise, it fits when one unit more does
          wait = rule.as.after(rule, k, need - left, now) -- @each
        end
        if needs[k] and shown == 0 then shown = -1 end
      end
      out[o + 1], out[o + 2], out[o + 3] = shown, wait, reset[k]
    end
    o = o + 3
  end
  out[place] = verdict
end

rules, K = all, #all -- @several
local stamp = be56(now)
for r = 1, K do
  local rule = rules[r]
  rule.as.save(rule, now, stamp, grace) -- @each
end
tallies.close(now, grace) -- @tallies
out[o + 1] = tonumber(argv[#argv])
return out
