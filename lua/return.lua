-- Gives units of admitted charges back, each for itself and in order: several returns
-- may be to one key. Everything is read and checked before the first write; if one key is
-- wrong, nothing is written. A key that is full again is deleted, and any other keeps at
-- least the TTL that it had. Then the script looks at all keys.
--
-- KEYS      for each return the key of its state and, for an algorithm with
--           @returned, the key of what was given back before; in a cluster all in
--           one slot
-- ARGV[1]   now in us since the epoch; '' for the time of Redis, as always but in tests
-- ARGV[2]   ms that each key outlives its last unit
-- ARGV[3…]  for each return: algorithm (its number in package core), limit,
--           window in us, parameters (as in take.lua); units to give back; and of the admission its time in us, what remained,
--           and the us until the quota was full
-- reply     an integer for each return: units that were given back, or what is
--           wrong with its key: -1 a value of another type, -2 a value that no
--           script wrote, -3 that the time of Redis is in none of the calendar periods sent.
--           If nothing is wrong, then for each return three of its key: remaining; us until
--           remaining grows; us until the quota is full
--
-- give_back of an algorithm takes the value of a key, the return, now, and the
-- value that remembers what was given back before. It returns the units given
-- back, the new value ('' for none), the us that it matters, and what to remember;
-- or nil and what is wrong.

local now, grace = tonumber(ARGV[1]), tonumber(ARGV[2])
if not now then
  local t = call('TIME')
  now = t[1]*1000000 + t[2]
end
open_tallies(now, 0) -- @tallies

local out, writes, wrong = {}, {}, false
local k, rules, pending = 0, {}, {} -- by key, what is about to be written

local function read(key)
  if pending[key] then return pending[key] ~= '' and pending[key] end
  local value = redis.pcall('GET', key)
  if type(value) == 'table' then return nil, WRONG_TYPE end
  return value
end

for i = 3, #ARGV, 8 do
  local r = {limit = tonumber(ARGV[i + 1]), window = tonumber(ARGV[i + 2]), cost = tonumber(ARGV[i + 4]),
    at = tonumber(ARGV[i + 5]), remaining = tonumber(ARGV[i + 6]), reset = tonumber(ARGV[i + 7])}
  local as = algorithms[tonumber(ARGV[i])]
  k = k + 1
  r.as, r.first, r.last, r.capacity, r.short = as, k, k, r.limit, r.window < 4294967296
  if as.prepare then as.prepare(r, ARGV[i + 3]) end
  rules[#rules + 1] = r
  local key, memory_key = keys[k], nil
  local value, problem = read(key)
  local remembered
  if as.returned then
    k = k + 1
    memory_key = keys[k]
    local other
    remembered, other = read(memory_key)
    problem = problem or other
  end
  local given, rest, life, memory = 0, nil, nil, nil
  if not knew(key, r.at) then value = nil end -- @tallies
  if not problem and value then
    given, rest, life, memory = as.give_back(value, r, now, remembered)
    if not given then problem = rest end
  end
  if problem then
    out[#out + 1], wrong = -problem, true
  else
    out[#out + 1] = given
    if given > 0 then
      writes[#writes + 1], pending[key] = {key, rest, life}, rest
      if memory then writes[#writes + 1], pending[memory_key] = {memory_key, memory, r.fills + 1}, memory end
    end
  end
end
if wrong then return out end

for i = 1, #writes do
  local key, value, life = writes[i][1], writes[i][2], writes[i][3]
  if value == '' then
    call('DEL', key)
  else
    local ttl, left = ceil(life / 1000) + grace, call('PTTL', key)
    call('SET', key, value, 'PX', left > ttl and left or ttl)
  end
end

local stamp = be56(now)
for i = 1, #rules do
  local r = rules[i]
  r.as.load(r, now)
  k = r.first
  if problem[k] then room[k], more[k], reset[k] = 0, -2, 0 end -- which makes no sense
  out[#out + 1], out[#out + 2], out[#out + 3] = room[k] > 0 and room[k] or 0, more[k], reset[k]
  if redated[k] then -- the clock stepped back, or the window is another
    local left = call('PTTL', keys[k])
    r.as.save(r, now, stamp, grace)
    if left > call('PTTL', keys[k]) then call('PEXPIRE', keys[k], left) end
  end
end
for i = 1, #rules do close_return(rules[i].first, now, grace, out[i], rules[i].at) end -- @tallies
return out
