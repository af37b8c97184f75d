-- Renews or releases the leases of one decision, which concurrency.lua takes.
-- Each is for itself: one that is not held keeps no other from being renewed.
-- Both may be repeated.
--
-- KEYS      the key of each rule, each once; in a cluster all in one slot
-- ARGV[1]   now in us since the epoch; '' for the time of Redis, as always but in tests
-- ARGV[2]   ms that each key outlives its last lease
-- ARGV[3]   '1' to renew, '0' to release
-- ARGV[4…]  for each key: how long a lease lives, us; the id of the lease, 8 bytes
-- reply     for each key: 1 if the lease was held, 0 if not; below 0 what is
--           wrong with the key: -1 a value of another type, -2 a value that no
--           script wrote

-- cuts a lease out of leases; the second result is how many units it had
local function cut(leases, id)
  local units, from = 0, 1
  while true do
    local i = string.find(leases, id, from, true)
    if not i then return leases, units end
    if (i - 8) % LEASE == 0 then
      units = units + u24(leases, i + 8)
      leases, from = sub(leases, 1, i - 8) .. sub(leases, i + LEASE - 7), i - 7
    else
      from = i + 1 -- the bytes of two fields
    end
  end
end

local function renew(s, id)
  local rest, units = cut(s.leases, id)
  if units == 0 then return 0, false end
  s.leases, s.used = rest, s.used - units
  if s.used >= 0 then add_lease(s, id, units) end -- or they do not add up
  return 1, true
end

local function release(s, id)
  local rest, units = cut(s.leases, id)
  local _, ended = cut(s.ended, id)
  s.leases, s.used = rest, s.used - units
  return units > 0 and 1 or 0, units > 0 or ended > 0
end

local now, grace, act = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3] == '1' and renew or release
if not now then
  local t = call('TIME')
  now = t[1]*1000000 + t[2]
end

local out = {}
for k = 1, #keys do
  local rule = {first = k, last = k, limit = 0, window = tonumber(ARGV[2*k + 2]), as = leases}
  leases.load(rule, now)
  if problem[k] then
    out[k] = -problem[k]
  else
    local s, changed = states[k], nil
    out[k], changed = act(s, ARGV[2*k + 3])
    taken[k] = changed and 1 or 0
    if not adds_up(s) then -- what was cut out has hidden it
      out[k] = -WRONG_VALUE
    elseif changed and s.leases == '' then
      call('DEL', keys[k])
    else
      leases.save(rule, now, '', grace)
    end
  end
end
return out
