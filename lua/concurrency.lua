-- Concurrency: leases of units, at most `limit` of them at the same time. The
-- twin of core/concurrency.go.
--
-- value    'j':1  units:3  lease …    units of all leases, in the order in which they end
-- lease    ends:7  id:8  units:3      18 bytes; an id is bytes, since doubles hold 53 bits
-- params   the ids of the requests, in their order; if these have several asks, the ids of
--          all their charges
--
-- @needs small.lua
-- @value j 22 18

local LEASE = 18

-- the leases of a value from a place on, all made to end at a time
local function leases_ending(leases, from, ends)
  local out, stamp = {}, be56(ends)
  for i = from, #leases, LEASE do out[#out + 1] = stamp .. sub(leases, i + 7, i + LEASE - 1) end
  return table.concat(out)
end

-- the next leases to end must end
local function leases_after(s, n)
  for i = 1, #s.leases, LEASE do
    n = n - u24(s.leases, i + 15)
    if n <= 0 then return u56(s.leases, i) - s.now end
  end
  return s.reset -- something else has changed the sum
end

local function leases_outlook(s)
  local room = s.rule.limit - s.used
  s.room, s.more, s.reset = room, 0, 0
  if s.used > 0 then
    s.reset = u56(s.leases, #s.leases - LEASE + 1) - s.now
    s.more = leases_after(s, room < 0 and 1 - room or 1)
  end
end

local function add_lease(s, id, n)
  s.leases = s.leases .. be56(s.now + s.rule.window) .. id .. be24(n)
  s.used = s.used + n
end

local function take_leases(s, n)
  add_lease(s, s.id, n)
  leases_outlook(s)
end

local function encode_leases(s)
  return 'j' .. be24(s.used) .. s.leases, u56(s.leases, #s.leases - LEASE + 1) - s.now
end

-- whether the units are those of the leases and the last of these is to end, as
-- far as can be told without reading them all
local function adds_up(s)
  if s.used <= 0 then return s.used == 0 and s.leases == '' end
  return s.leases ~= '' and u56(s.leases, #s.leases - LEASE + 1) > s.now
end

local function decode_leases(value, rule, now)
  local s = {rule = rule, now = now, used = 0, ended = '', leases = ''}
  if value then
    if #value < 4 or (#value - 4) % LEASE ~= 0 or byte(value, 1) ~= 106 then return nil end
    local used, i, last = u24(value, 2), 5, now + rule.window
    while i < #value and u56(value, i) <= now do
      used, i = used - u24(value, i + 15), i + LEASE
    end
    s.used, s.ended, s.leases = used, sub(value, 5, i - 1), sub(value, i)
    if not adds_up(s) then return nil end
    local j = #s.leases + 1
    while j > 1 and u56(s.leases, j - LEASE) > last do j = j - LEASE end
    if j <= #s.leases then
      s.leases, s.ended, s.redated = sub(s.leases, 1, j - 1) .. leases_ending(s.leases, j, last), '', true
    end
  end
  leases_outlook(s)
  return s
end

local leases = small{decode = decode_leases, step = take_leases, later = leases_after, encode = encode_leases}
algorithms[7] = leases

function leases.prepare(rule, params) rule.ids = params end

-- at is where the blob goes on behind what the stride says: a request, or a charge
function leases.take(rule, k, n, at)
  local i = (at - 1) / rule.stride * 8
  states[k].id = sub(rule.ids, i - 7, i)
  take_small(rule, k, n)
end
