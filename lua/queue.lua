-- The queue: admitted units wait for their turn. The twin of core/queue.go.
--
-- params   the units that may wait, and the longest wait in us or 0
--
-- @needs schedule.lua

-- there is no room for a unit that would wait for longer than rule.wait

local function queue_after(s, n)
  local after = passed(s, s.used - n)
  if s.rule.wait > 0 and s.delay - s.rule.wait > after then after = s.delay - s.rule.wait end
  return after > 0 and after or 0
end

local function queue_outlook(s)
  s.delay = passed(s, 0)
  local room = s.rule.burst + 1 - units(s)
  if s.rule.wait > 0 and s.delay > s.rule.wait and room > 0 then room = 0 end
  s.used = s.rule.burst + 1 - room
  s.room, s.more, s.reset = room, 0, 0
  if s.used > 0 then s.more, s.reset = queue_after(s, room < 0 and 1 - room or 1), queue_after(s, s.used) end
end

local function take_queue(s, n)
  s.delay_taken = s.delay
  append(s, n)
  s.taken = true
  queue_outlook(s)
end

local function decode_queue(value, rule, now)
  local s = schedule(value, rule, now, rule.burst + 1)
  if not s then return nil end
  queue_outlook(s)
  return s
end

local queue = small{decode = decode_queue, step = take_queue, later = queue_after, encode = encode_schedule}
algorithms[6] = queue

function queue.prepare(rule, params)
  local burst, wait = string.match(params, '^(%d+),(%d+)$')
  rule.burst, rule.wait = tonumber(burst), tonumber(wait)
  rule.capacity = rule.burst + 1
end

-- @return
-- Gives back the last units of the queue, while their turn has not come: see
-- core/queue.go.
function queue.give_back(value, r, now)
  if #value ~= 20 or byte(value, 1) ~= 105 then return nil, WRONG_VALUE end
  local stop, part, limit = u56(value, 2), u48(value, 9), u48(value, 15)
  if limit ~= r.limit or limit > r.window or r.at > now or stop < now or
      (part > 0 and stop + 1 or stop) ~= r.at + r.reset then return 0 end
  local whole, rest = muldiv(stop - now, limit, r.window)
  local given = math.min(r.cost, whole + ceildiv(rest + part, r.window) - 1) -- but the one that is passing
  if given <= 0 then return 0 end
  whole, rest = muldiv(given, r.window, limit)
  stop, part = stop - whole, part - rest
  if part < 0 then stop, part = stop - 1, part + limit end
  return given, 'i' .. be56(stop) .. be48(part) .. be48(limit), stop - now + 1
end
