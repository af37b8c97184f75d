-- The sliding log as it is usually written: a sorted set for each rule with a
-- member for each unit and its time as the score. It takes one decision on one
-- or several rules, all or nothing: all are checked first, then all are added
-- to. Tests and benchmarks compare take.lua with it; nothing else uses it.
--
-- KEYS[i]    the sorted set of rule i; in a cluster all in one slot
-- ARGV[1]    now in us since the epoch; '' for the time of Redis
-- ARGV[2]    ms that each key outlives its last unit
-- ARGV[3]    a string that no other request has; with more than one unit,
--            their members are it and a number
-- ARGV[3i+1] the cost for rule i, in units; 0 looks without taking
-- ARGV[3i+2] the limit of rule i, in units in any window
-- ARGV[3i+3] the window of rule i, in us
-- reply      integers: now in us, 1 if admitted or 0 if refused, then for each
--            rule two:
--              units that remain after the decision, at least 0
--              us until the cost would fit if nobody else came: 0 if it fits,
--              -1 if it is above the limit
--
-- A unit at time t is in the window while now - t < window. Unlike take.lua it
-- leaves a unit ahead of now where it is, should the clock step back, and drops
-- what has left the window even when it refuses.

local now = tonumber(ARGV[1])
if not now then
  local t = redis.call('TIME')
  now = t[1]*1000000 + t[2]
end

local admitted, rules = true, {}
for i, key in ipairs(KEYS) do
  local rule = {cost = tonumber(ARGV[3*i + 1]), limit = tonumber(ARGV[3*i + 2]), window = tonumber(ARGV[3*i + 3])}
  redis.call('ZREMRANGEBYSCORE', key, '-inf', now - rule.window)
  rule.room = rule.limit - redis.call('ZCARD', key)
  rule.fits = rule.cost <= rule.room or rule.cost == 0
  admitted = admitted and rule.fits
  rules[i] = rule
end

local reply = {now, admitted and 1 or 0}
for i, key in ipairs(KEYS) do
  local rule, retry = rules[i], 0
  if admitted and rule.cost > 0 then
    for unit = 1, rule.cost do
      redis.call('ZADD', key, now, rule.cost == 1 and ARGV[3] or ARGV[3] .. ':' .. unit)
    end
    redis.call('PEXPIRE', key, math.ceil(rule.window / 1000) + ARGV[2])
    rule.room = rule.room - rule.cost
  elseif not rule.fits then
    retry = -1
    if rule.cost <= rule.limit then
      local last = rule.cost - rule.room - 1 -- the last unit that must leave, from the oldest
      local time = redis.call('ZRANGE', key, last, last, 'WITHSCORES')[2]
      retry = rule.window - (now - time)
    end
  end
  reply[2*i + 1], reply[2*i + 2] = math.max(rule.room, 0), retry
end
return reply
