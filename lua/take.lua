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
  local missing
  for q = 1, count do
    if not values[q] then
      missing = missing or {}
      missing[#missing + 1] = KEYS[first + q]
    end
  end
  if not missing or call('EXISTS', unpack(missing)) == 0 then return nil end
  local wrong = {}
  for q = 1, count do wrong[q] = not values[q] and call('EXISTS', KEYS[first + q]) > 0 end
  return wrong
end

-- the algorithm of a rule, and what it makes of its text. Those that a policy
-- does not use are not in its script: to define a function is what costs most.
local function algorithm(number, rule, params)
  rule.capacity = rule.limit
  if number == 0 then
    local ticks = rule.window < 4294967296 and short_ticks() or long_ticks()
    rule.ticks, rule.head, rule.take = ticks, char(ticks.form), take_log
    if rule.limit > 128 then rule.load, rule.after, rule.save = load_ring, ring_after, save_ring
    else rule.decode, rule.after, rule.save = decode_log, log_after, save_log end
    local ms = ceil(rule.window / 1000)
    rule.life = text((rule.load and 2*ms or ms) + rule.grace)
  elseif number == 1 then
    rule.decode, rule.take, rule.after, rule.encode = decode_window, take_window, window_after, encode_window
    rule.periods = params
  elseif number == 2 then
    rule.decode, rule.take, rule.after, rule.encode = decode_cells, take_cells, cells_after, encode_cells
    rule.cells = tonumber(params)
  elseif number == 3 then
    rule.decode, rule.take, rule.after, rule.encode = decode_counter, take_counter, counter_after, encode_counter
  else
    local first, second = string.match(params, '^(%d+),(%d+)$')
    rule.burst = tonumber(first)
    rule.capacity = rule.burst
    if number == 4 then
      rule.decode, rule.take, rule.after, rule.encode = decode_bucket, take_bucket, bucket_after, encode_bucket
      rule.refuse, rule.missing = refuse_bucket, tonumber(second)
    elseif number == 5 then
      rule.decode, rule.take, rule.after, rule.encode = decode_meter, take_meter, meter_after, encode_schedule
    else
      rule.decode, rule.take, rule.after, rule.encode = decode_line, take_line, line_after, encode_schedule
      rule.wait, rule.capacity = tonumber(second), rule.burst + 1
    end
  end
end

local now, grace, K = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
if not now then
  local t = call('TIME')
  now = t[1]*1000000 + t[2]
end
local stamp = {full = be56(now), [4] = be32(now % 4294967296), [6] = be48(now % 281474976710656)}

-- A rule has the functions of its algorithm: decode or load a state; take(s, n);
-- after(s, n): us until there is room for n units more; encode(s) or save(s). A
-- state has room: the units that fit; more: us until remaining grows; reset: us
-- until the quota is whole.
local states, i = {}, 0
for r = 1, K do
  local at = 5*r - 1
  local rule = {limit = tonumber(ARGV[at + 1]), window = tonumber(ARGV[at + 2]), now = now, grace = grace}
  local count = tonumber(ARGV[at + 3])
  algorithm(tonumber(ARGV[at]), rule, ARGV[at + 4])
  if rule.load then
    for q = i + 1, i + count do
      local state, problem = rule.load(KEYS[q], rule, now)
      states[q] = state or {problem = problem or WRONG_VALUE}
    end
  else
    local values = call('MGET', unpack(KEYS, i + 1, i + count))
    local wrong, decode = wrong_type(values, i, count), rule.decode
    for q = 1, count do
      if wrong and wrong[q] then
        states[i + q] = {problem = WRONG_TYPE}
      else
        local state, problem = decode(values[q], rule, now)
        states[i + q] = state or {problem = problem or WRONG_VALUE}
      end
    end
  end
  i = i + count
end

local out, o = {now}, 1
local blob = ARGV[5*K + 4]
local mine, costs, size = {}, {}, 8*K
for start = 1, #blob, size do
  local verdict = 1
  for r = 1, K do
    local at = start + 8*r - 8
    local a, b, c, d, e, f, g, h = byte(blob, at, at + 7)
    local s, cost = states[a*256 + b], ((((c*256 + d)*256 + e)*256 + f)*256 + g)*256 + h
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
      local room, wait = s.room, nil
      if verdict >= 1 then
        if cost > 0 then
          s.rule.take(s, cost)
          room = s.room
          if s.turn and s.turn >= verdict then verdict = s.turn + 1 end
        end
      elseif cost > 0 then
        if cost > room then
          if cost > s.rule.capacity then wait = -1
          elseif cost > 1 or room > 0 then wait = s.rule.after(s, cost - room) end
        end
        if s.rule.refuse then s.rule.refuse(s) end
      end
      out[o + 1], out[o + 2], out[o + 3] = room > 0 and room or 0, wait or s.more, s.reset
    end
    o = o + 3
  end
  out[place] = verdict
end

for k = 1, #KEYS do
  local s = states[k]
  if not s.problem and (s.taken or 0) ~= 0 or s.redated then
    local rule = s.rule
    if rule.save then
      rule.save(s, KEYS[k], stamp)
    else
      local value, life = rule.encode(s) -- life in us
      call('SET', KEYS[k], value, 'PX', text(ceil(life / 1000) + grace))
    end
  end
end
return out
