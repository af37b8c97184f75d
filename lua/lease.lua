-- Renews or releases leases, which concurrency.lua takes: those of a key in one pass
-- over the list. Each is for itself: one that is not held keeps no other from being
-- renewed. Both may be repeated.
--
-- KEYS      the keys of the leases; in a cluster all in one slot
-- ARGV[1]   now in us since the epoch; '' for the time of Redis, as always but in tests
-- ARGV[2]   ms that each key outlives its last lease
-- ARGV[3]   '1' to renew, '0' to release
-- ARGV[4…]  for each key: how long a lease lives, us:6; the ids of leases, 8 bytes each
-- reply     for each id, in order: 1 if the lease was held, 0 if not; below 0 what is
--           wrong with its key: -1 a value of another type, -2 a value that no
--           script wrote

-- cuts the leases with some ids out of a list, and adds their units to those of the id
local function cut(list, units)
  local rest, from = {}, 1
  for i = 1, #list, LEASE do
    local id = sub(list, i + 7, i + 14)
    local n = units[id]
    if n then
      units[id] = n + u24(list, i + 15)
      rest[#rest + 1], from = sub(list, from, i - 1), i + LEASE
    end
  end
  rest[#rest + 1] = sub(list, from)
  return table.concat(rest)
end

local now, grace, renews = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3] == '1'
if not now then
  local t = call('TIME')
  now = t[1]*1000000 + t[2]
end
tallies.open_all(now, 0) -- @tallies

local out = {}

-- appends the same reply for all ids
local function reply(ids, number)
  for i = 1, #ids, 8 do out[#out + 1] = number end
end

-- renews or releases the leases of a key, and returns their replies
local function touch(k, s, ids)
  local units, held, changed = {}, {}, false
  for i = 1, #ids, 8 do units[sub(ids, i, i + 7)] = 0 end
  s.leases = cut(s.leases, units)
  local list, all, ends = {}, 0, now + s.rule.window
  for i = 1, #ids, 8 do
    local id = sub(ids, i, i + 7)
    local n = units[id]
    held[#held + 1] = n == 0 and 0 or 1
    if n > 0 then
      changed, units[id] = true, -1 -- once, if an id comes again
      s.used = s.used - n
      if renews and s.used + all >= 0 then -- or they do not add up
        list[#list + 1], all = be56(ends) .. id .. be24(n), all + n
      end
    end
  end
  if all > 0 then add_leases(s, ends, table.concat(list), all) end
  taken[k] = (changed or not renews and #cut(s.ended, units) < #s.ended) and 1 or 0
  return held
end

for k = 1, #keys do
  local head = ARGV[2*k + 2]
  local rule = {first = k, last = k, limit = 0, window = u48(head, 1), head = head, as = leases}
  local ids = ARGV[2*k + 3]
  leases.load(rule, now)
  if problem[k] then
    reply(ids, -problem[k])
  else
    local s = states[k]
    local held = touch(k, s, ids)
    if not adds_up(s) then -- what was cut out has hidden it
      reply(ids, -WRONG_VALUE)
    else
      for i = 1, #held do out[#out + 1] = held[i] end
      if taken[k] > 0 and s.leases == '' then
        call('DEL', keys[k])
      else
        leases.save(rule, now, '', grace)
      end
    end
  end
end
tallies.close(now, grace) -- @tallies
return out
