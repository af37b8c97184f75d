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
--           algorithm (0: sliding log), limit, window in us, number of its keys
-- ARGV[#]   the decisions, each K times: index in KEYS:2, cost:6, big-endian
-- reply     integers: now in us, then for each decision its verdict
--           (1 admitted, 0 refused, -1 undecided) and for each rule three:
--             remaining; us until the cost fits if it does not (-1: never), or
--             else until remaining grows; us until the quota is whole
--           of an undecided one the first of the three says what is wrong with
--           the key: 0 nothing, 1 a value of another type, 2 no value of ours

local function clock()
  if ARGV[1] ~= '' then return tonumber(ARGV[1]) end
  local t = redis.call('TIME')
  return t[1]*1000000 + t[2]
end

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

local now, grace, K = clock(), tonumber(ARGV[2]), tonumber(ARGV[3])
local stamp = {full = be56(now), [4] = be32(now % short.modulus), [6] = be48(now % long.modulus)}

local states, i = {}, 0
for r = 1, K do
  local rule = {limit = tonumber(ARGV[4*r + 1]), window = tonumber(ARGV[4*r + 2])}
  local count = tonumber(ARGV[4*r + 3])
  rule.ticks = ticks_for(rule.window)
  rule.as = rule.limit <= 128 and log or ring
  if rule.as.load then
    for q = i + 1, i + count do
      local state, problem = rule.as.load(KEYS[q], rule, now)
      states[q] = state or {problem = problem or WRONG_VALUE}
    end
  else
    local values = redis.call('MGET', unpack(KEYS, i + 1, i + count))
    local wrong = wrong_type(values, i, count)
    for q = 1, count do
      local state = not wrong[KEYS[i + q]] and rule.as.decode(values[q], rule, now)
      states[i + q] = state or {problem = values[q] and WRONG_VALUE or WRONG_TYPE}
    end
  end
  i = i + count
end

local out, o = {now}, 1
local blob = ARGV[4*K + 4]
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
  out[o] = verdict
  for r = 1, K do
    local s, cost = mine[r], costs[r]
    if verdict == -1 then
      out[o + 1], out[o + 2], out[o + 3] = s.problem or 0, 0, 0
    else
      local fits = cost <= s.room or cost == 0
      if verdict == 1 then
        s.room = s.room - cost
        s.taken = s.taken + cost
      end
      local leaves, rule, units = s.rule.as.leaves, s.rule, s.live + s.taken
      out[o + 1] = s.room > 0 and s.room or 0
      if fits then
        -- of a lowered limit, more may be live than it allows
        out[o + 2] = units > 0 and leaves(s, s.room < 0 and -s.room or 0) or 0
      else
        out[o + 2] = cost > rule.limit and -1 or leaves(s, cost - s.room - 1)
      end
      out[o + 3] = units > 0 and leaves(s, units - 1) or 0
    end
    o = o + 3
  end
end

for k = 1, #KEYS do
  local s = states[k]
  if not s.problem and (s.taken > 0 or s.redated) then
    if s.rule.as.save then
      s.rule.as.save(s, stamp, grace)
    else
      local value, ttl = s.rule.as.encode(s, stamp)
      redis.call('SET', KEYS[k], value, 'PX', ttl + grace)
    end
  end
end
return out
