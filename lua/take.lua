-- Takes a batch of decisions on one policy. Each is admitted only if every rule
-- has room, and otherwise changes nothing; they are decided in order, on one
-- clock reading, and see each other. Everything is read and checked before the
-- first write, and each key is read and written once.
--
-- KEYS      every key once, grouped by rule in the order of the rules; in a
--           cluster all in one slot
-- ARGV[1]   now in us since the epoch; '' for the time of Redis, as always but in tests
-- ARGV[2]   ms that each key outlives its last unit
-- ARGV[3]   K, the number of rules, then for each of them:
--           algorithm (its number in package core), limit, window in us, number
--           of its keys, and what else its algorithm needs (see below)
-- ARGV[#]   the decisions, each K times: index in KEYS:2, cost:6, big-endian
-- reply     integers: now in us, then for each decision its verdict
--           (0 refused, -1 undecided, otherwise admitted and one more than the
--           us until its turn comes) and for each rule three:
--             remaining; us until the cost fits if it does not (-1: never), or
--             else until remaining grows; us until the quota is whole
--           of an undecided one the first of the three says what is wrong with
--           the key: 0 nothing, 1 a value of another type, 2 no value of ours,
--           3 that the time of Redis is in none of the calendar periods sent

-- MGET reads a key of another type as one that is not there
local function wrong_type(values, first, count)
  local missing = {}
  for q = 1, count do
    if not values[q] then missing[#missing + 1] = KEYS[first + q] end
  end
  local wrong = {}
  if #missing > 0 and redis.call('EXISTS', unpack(missing)) > 0 then
    for _, key in ipairs(missing) do
      if redis.call('EXISTS', key) > 0 then wrong[key] = true end
    end
  end
  return wrong
end

-- the algorithm of a rule, and what it makes of its text. Those that a policy
-- does not use are not in its script: to define a function is what costs most.
local function algorithm(number, rule, text)
  rule.capacity = rule.limit
  if number == 0 then
    rule.ticks = rule.window < 4294967296 and short_ticks() or long_ticks()
    return rule.limit <= 128 and log or ring
  end
  if number == 1 then rule.periods = text; return fixedwindow end
  if number == 2 then rule.cells = tonumber(text); return cells end
  if number == 3 then return counter end
  local first, second = string.match(text, '^(%d+),(%d+)$')
  rule.burst = tonumber(first)
  rule.capacity = rule.burst
  if number == 4 then rule.missing = tonumber(second); return tokenbucket end
  if number == 5 then return leakybucket end
  rule.wait, rule.capacity = tonumber(second), rule.burst + 1
  return queue
end

local now, grace, K = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
if not now then
  local t = redis.call('TIME')
  now = t[1]*1000000 + t[2]
end
local stamp = {full = be56(now), [4] = be32(now % 4294967296), [6] = be48(now % 281474976710656)}

local states, i = {}, 0
for r = 1, K do
  local at = 5*r - 1
  local rule = {limit = tonumber(ARGV[at + 1]), window = tonumber(ARGV[at + 2])}
  local count = tonumber(ARGV[at + 3])
  rule.as = algorithm(tonumber(ARGV[at]), rule, ARGV[at + 4])
  if rule.as.load then
    for q = i + 1, i + count do
      local state, problem = rule.as.load(KEYS[q], rule, now)
      states[q] = state or {problem = problem or WRONG_VALUE}
    end
  else
    local values = redis.call('MGET', unpack(KEYS, i + 1, i + count))
    local wrong = wrong_type(values, i, count)
    for q = 1, count do
      if wrong[KEYS[i + q]] then
        states[i + q] = {problem = WRONG_TYPE}
      else
        local state, problem = rule.as.decode(values[q], rule, now)
        states[i + q] = state or {problem = problem or WRONG_VALUE}
      end
    end
  end
  i = i + count
end

local out, o = {now}, 1
local blob = ARGV[5*K + 4]
local mine, costs = {}, {}
for start = 1, #blob, 8*K do
  local verdict = 1
  for r = 1, K do
    local at = start + 8*(r - 1)
    local a, b = byte(blob, at, at + 1)
    local s, cost = states[a*256 + b], u48(blob, at + 2)
    mine[r], costs[r] = s, cost
    if s.problem then
      verdict = -1
    elseif verdict == 1 and cost > s.room and cost > 0 then
      verdict = 0
    end
  end
  o = o + 1
  local place = o
  for r = 1, K do
    local s, cost = mine[r], costs[r]
    if verdict == -1 then
      out[o + 1], out[o + 2], out[o + 3] = s.problem or 0, 0, 0
    else
      local rule = s.rule
      local as, fits = rule.as, cost <= s.room or cost == 0
      if cost > 0 then
        if verdict >= 1 then
          as.take(s, cost)
          if s.turn and s.turn >= verdict then verdict = s.turn + 1 end
        elseif as.refuse then
          as.refuse(s)
        end
      end
      local room, used = s.room, as.used and as.used(s) or s.used
      out[o + 1] = room > 0 and room or 0
      if fits then
        -- of a lowered limit, more may be used than it allows
        out[o + 2] = used > 0 and as.after(s, room < 0 and 1 - room or 1) or 0
      else
        out[o + 2] = cost > rule.capacity and -1 or as.after(s, cost - room)
      end
      out[o + 3] = used > 0 and as.after(s, used) or 0
    end
    o = o + 3
  end
  out[place] = verdict
end

for k = 1, #KEYS do
  local s = states[k]
  if not s.problem and (s.taken or s.redated) then
    if s.rule.as.save then
      s.rule.as.save(s, stamp, grace)
    else
      local value, life = s.rule.as.encode(s, stamp) -- life in us
      redis.call('SET', KEYS[k], value, 'PX', ceil(life / 1000) + grace)
    end
  end
end
return out
