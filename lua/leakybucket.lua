-- The leaky bucket as a meter (GCRA). The twin of core/leakybucket.go.
--
-- params   the burst
--
-- @needs schedule.lua

local function leaky_after(s, n) return passed(s, s.used - n) end

local function leaky_outlook(s)
  s.used = units(s)
  local room = s.rule.burst - s.used
  s.room, s.more, s.reset = room, 0, 0
  if s.used > 0 then s.more, s.reset = leaky_after(s, room < 0 and 1 - room or 1), passed(s, 0) end
end

local function take_leaky(s, n)
  append(s, n)
  s.taken = true
  leaky_outlook(s)
end

local function decode_leaky(value, rule, now)
  local s = schedule(value, rule, now, rule.burst)
  if not s then return nil end
  leaky_outlook(s)
  return s
end

local leaky_bucket = small{decode = decode_leaky, step = take_leaky, later = leaky_after, encode = encode_schedule}
algorithms[5] = leaky_bucket

function leaky_bucket.prepare(rule, params)
  rule.burst = tonumber(params)
  rule.capacity = rule.burst
end

-- @return
-- @needs bucketreturn.lua
leaky_bucket.returned = true

function leaky_bucket.give_back(value, r, now, remembered)
  if #value ~= 20 or byte(value, 1) ~= 105 or not remembers(remembered) then return nil, WRONG_VALUE end
  local stop, part, limit = u56(value, 2), u48(value, 9), u48(value, 15)
  if part >= limit then return nil, WRONG_VALUE end
  if limit ~= r.limit or stop < now or r.at > now then return 0 end
  local units, rest = muldiv(stop - now, limit, r.window)
  rest = rest + part
  local over = floordiv(rest, r.window)
  local lacks = {units + over, rest - over*r.window}
  if below({r.burst, 0}, lacks) then return 0 end
  local left, given, memory = give(r, now, lacks, remembered)
  if given == 0 then return 0 end
  local whole
  whole, rest = muldiv(left[1], r.window, limit)
  rest = rest + left[2]
  part = rest % limit
  stop = now + whole + (rest - part) / limit
  if stop == now and part == 0 then return given, '', 0, memory end
  return given, 'i' .. be56(stop) .. be48(part) .. be48(limit), stop - now + 1, memory
end
