-- Takes debts, each whatever is left and even above the limit, as of the time at which
-- its units were used. They see each other. Everything is read and checked before the
-- first write; if one key is wrong, nothing is written.
--
-- KEYS      the key of each debt, and then that of the mark of each, see reset.lua; in a
--           cluster all in one slot
-- ARGV[1]   now in us since the epoch; '' for the time of Redis, as always but in tests
-- ARGV[2]   the time of Redis after which the call does nothing, or 0
-- ARGV[3]   ms that each key outlives its last unit
-- ARGV[4…]  for each debt: algorithm (its number in package core), limit, window in us,
--           parameters (as in take.lua, without ids); its units; the us for which they
--           have been used; its id, 8 bytes; the us since its units were used before a
--           reset, which cancels it, or 0; how many units above the limit the key may
--           have afterwards, or 0 for any number, or -1 for none
-- ARGV[#]   the number of the call
-- reply     integers: now in us, then for each debt four: what remains, at least 0; us
--           until that grows; us until the quota is full; the units that are above what
--           the key may have, and were not taken. If a key is wrong, the first is
--           below 0: -1 a value of another type, -2 a value that no script wrote, -3
--           that the time of Redis is in none of the calendar periods sent. The last is
--           the number of the call. A call that comes after its deadline has the first
--           and the last only.
--
-- Charge of an algorithm brings a value to now, and takes a debt of n units from it. It
-- returns the state, and if it must be written, the new value and the us that it matters;
-- or nil and what is wrong with the value. One with a small state has owe instead, which
-- changes the state, or returns false if the debt has no effect any more.

local marks = {}
for k = #keys/2, 1, -1 do marks[k] = table.remove(keys) end

local now, deadline, grace = tonumber(argv[1]), tonumber(argv[2]), tonumber(argv[3])
if not now then
  local t = call('TIME')
  now = t[1]*1000000 + t[2]
  if now > deadline and deadline > 0 then return {now, tonumber(argv[#argv])} end
end
tallies.open_all(now, 1) -- @tallies

local function charge_small(rule, value, now, n, at, id)
  local as = rule.as
  local s, what = as.decode(value, rule, now)
  if not s then return nil, what or WRONG_VALUE end
  local most = rule.debt
  if most ~= 0 then
    most = math.max(0, most)
    if rule.burst then most = math.min(most, owed_most(rule, rule.burst) - rule.burst) end
    rule.takes = math.min(n, math.max(0, s.room + most))
    n = rule.takes
  end
  s.carries = rule.debt > 0
  local owes = n > 0 and as.owe(s, n, at, id)
  if not owes and not s.redated then return s end
  local fresh, life = as.encode(s, be56(now))
  return as.decode(fresh, rule, now), fresh, math.max(life, owes and as.remembered or 0)
end

-- the value of a key, or nil and what is wrong with it
local function read(key)
  local value = redis.pcall('GET', key)
  if type(value) == 'table' then return nil, WRONG_TYPE end
  return value
end

local out, seen, lives, wrong = {now}, {}, {}, false
for k = 1, #keys do
  local i, key, mark = 9*k - 5, keys[k], nil
  local since = tonumber(argv[i + 7])
  if since > 0 then mark = redis.pcall('GET', marks[k]) end
  if type(mark) == 'string' and sub(mark, 1, 1) == 'P' and u56(mark, 2) >= now - since then argv[i + 4] = 0 end
  local rule = {as = algorithms[tonumber(argv[i])], limit = tonumber(argv[i + 1]), window = tonumber(argv[i + 2]), debt = tonumber(argv[i + 8])}
  rule.short = rule.window < 4294967296
  if rule.as.prepare then rule.as.prepare(rule, argv[i + 3]) end
  local value, what, at, s, fresh, life = seen[key], nil, now - argv[i + 5], nil, nil, nil
  if value == nil then value, what = read(key) end
  if not what then
    s, fresh, life = (rule.as.charge or charge_small)(rule, value, now, tonumber(argv[i + 4]), at > 0 and at or 0, argv[i + 6])
    if not s then what = fresh end
  end
  if what then
    out[4*k - 2], out[4*k - 1], out[4*k], out[4*k + 1], wrong = -what, 0, 0, 0, true
  else
    if fresh then seen[key], lives[key] = fresh, life end
    local takes = rule.takes or argv[i + 4]
    out[4*k - 2], out[4*k - 1], out[4*k], out[4*k + 1] = s.room > 0 and s.room or 0, s.more, s.reset, argv[i + 4] - takes
    argv[i + 4] = takes
  end
end
out[#out + 1] = tonumber(argv[#argv])
if wrong then return out end

for key, value in pairs(seen) do
  call('SET', key, value, 'PX', tostring(ceil(lives[key] / 1000) + grace))
end
for k = 1, #keys do close_debt(k, now, grace, tonumber(argv[9*k - 1]), now - argv[9*k]) end -- @tallies
return out
