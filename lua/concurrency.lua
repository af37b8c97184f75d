-- Concurrency: leases of units, at most `limit` of them at the same time. The
-- twin of core/concurrency.go.
--
-- value    'J':1  units:3  longest:6  lease …    units of all leases, in the order in which they end
-- longest  how long a lease lives at most, us: versions of a rule may differ in that
-- lease    ends:7  id:8  units:3      18 bytes; an id is bytes, since doubles hold 53 bits
-- params   longest:6 of this version, and the ids of the requests, in their order; if these have several asks, the ids of
--          all their charges
--
-- @needs small.lua
-- @value J 28 18

local LEASE = 18

-- @rare
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
  local room, leases, now = s.rule.limit - s.used, s.leases, s.now
  s.room, s.more, s.reset = room, 0, 0
  if s.used > 0 then
    s.reset = u56(leases, #leases - LEASE + 1) - now
    s.more = room < 0 and leases_after(s, 1 - room) or u56(leases, 1) - now
  end
end

-- @rare
-- how many bytes of leases end at a time or before
local function leases_until(list, ends)
  local i = #list
  while i > 0 and u56(list, i - LEASE + 1) > ends do i = i - LEASE end
  return i
end

-- adds leases that end at a time, from the list of their ids and units
local function add_leases(s, ends, list, n)
  local last = #s.leases
  if last == 0 or u56(s.leases, last - LEASE + 1) <= ends then
    s.leases = s.leases .. list
  else
    last = leases_until(s.leases, ends)
    s.leases = sub(s.leases, 1, last) .. list .. sub(s.leases, last + 1)
  end
  s.used = s.used + n
  if s.longest.window < s.rule.window then s.longest = s.rule end
end

local function take_leases(s, n)
  local ends = s.now + s.rule.window
  add_leases(s, ends, be56(ends) .. s.id .. be24(n), n)
  leases_outlook(s)
end

local function encode_leases(s)
  return 'J' .. be24(s.used) .. s.longest.head .. s.leases, u56(s.leases, #s.leases - LEASE + 1) - s.now
end

-- whether the units are those of the leases and the last of these is to end, as
-- far as can be told without reading them all
local function adds_up(s)
  if s.used <= 0 then return s.used == 0 and s.leases == '' end
  return s.leases ~= '' and u56(s.leases, #s.leases - LEASE + 1) > s.now
end

local function decode_leases(value, rule, now)
  -- all fields, since a table that grows takes longer
  local s = {rule = rule, longest = rule, now = now, used = 0, ended = '', leases = '', room = 0, more = 0, reset = 0, id = ''}
  if value then
    if #value < 10 or (#value - 10) % LEASE ~= 0 or byte(value, 1) ~= 74 then return nil end
    local used, i, head, longest = u24(value, 2), 11, sub(value, 5, 10), rule
    if head ~= rule.head then longest = {window = u48(head, 1), head = head} end
    while i < #value and u56(value, i) <= now do
      used, i = used - u24(value, i + 15), i + LEASE
    end
    s.used, s.ended, s.leases = used, sub(value, 11, i - 1), sub(value, i)
    if not adds_up(s) then return nil end
    if used > 0 then s.longest = longest end
  end
  leases_outlook(s)
  if s.reset > s.longest.window then -- the clock has stepped back
    local last = now + s.longest.window
    local upto = leases_until(s.leases, last)
    s.leases, s.ended, s.redated = sub(s.leases, 1, upto) .. leases_ending(s.leases, upto + 1, last), '', true
    leases_outlook(s)
  end
  return s
end

local leases = small(decode_leases, take_leases, leases_after, encode_leases)
algorithms[7] = leases

function leases.prepare(rule, params) rule.head, rule.ids = sub(params, 1, 6), sub(params, 7) end

-- at is where the blob goes on behind what the stride says: a request, or a charge
function leases.take(rule, k, n, at)
  local i = (at - 1) / rule.stride * 8
  states[k].id = sub(rule.ids, i - 7, i)
  take_small(rule, k, n)
end

-- @debt
-- Adopts a lease that began or was last renewed at a time: see core/concurrency.go.
function leases.owe(s, n, at, id)
  local ends, units, i = at + s.rule.window, 0, 0
  local list = s.leases
  repeat -- an id that is held already
    i = string.find(list, id, i + 1, true)
    if i and i % LEASE == 8 then
      units, ends = units + u24(list, i + 8), math.max(ends, u56(list, i - 7))
      list, i = sub(list, 1, i - 8) .. sub(list, i + 11), i - 8
    end
  until not i
  if ends <= s.now then return false end
  s.leases, s.used = list, s.used - units
  if units == 0 then units = math.min(n, s.rule.limit) end
  add_leases(s, ends, be56(ends) .. id .. be24(units), units)
  local first = 1
  while s.used > 20000 do -- twice core.MaxLeases
    s.used, first = s.used - u24(s.leases, first + 15), first + LEASE
  end
  s.leases = sub(s.leases, first)
  return true
end
