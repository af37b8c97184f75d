-- The queue: admitted units wait for their turn. The twin of core/queue.go.
--
-- params   the units that may wait, and the longest wait in us or 0
-- value    a schedule, which is the time at which the last of the units has passed, for
--          all versions of a rule:
--          'n':1  end:7  part:6  limit:6  last:7
--          or with gaps, the turns that were given back, 's' and window:6  total:6 behind
--          these, and for each gap its first unit:6, how many:6
-- end      us, rounded down;  part: limit-ths of a us that it is later
-- last     when it was written, us
-- total    the number of the next unit at the end; gaps count by limit and window
--
-- There is no room for a unit that would wait for longer than rule.wait.
--
-- @needs small.lua
-- @value n 27
-- @value s 51 12

local MOST = 1125899906842624 -- units: more than any capacity, and as many as can be counted exactly

-- units that have not passed, one that is passing included
local function units(s)
  local whole, rest = muldiv(s.ahead, s.rule.limit, s.rule.window)
  whole = whole + ceildiv(rest + s.part, s.rule.window)
  return whole < MOST and whole or MOST
end

local function append(s, n)
  local whole, rest = muldiv(n, s.rule.window, s.rule.limit)
  rest = rest + s.part
  s.part = rest % s.rule.limit
  s.ahead = s.ahead + whole + (rest - s.part) / s.rule.limit
end

-- us until no more than n units have not passed
local function passed(s, n)
  local whole, rest = muldiv(n, s.rule.window, s.rule.limit)
  return s.ahead - whole - floordiv(rest - s.part, s.rule.limit)
end

-- what is left of gap i: its first unit, and how many
local function open(s, i)
  local from = s.gaps[i]
  if s.next > from then from = s.next end
  return from, s.gaps[i] + s.gaps[i + 1] - from
end

-- notes the first unit whose turn has not begun
local function begin(s)
  if #s.gaps == 0 then return end
  local whole, rest = muldiv(s.ahead, s.rule.limit, s.rule.window)
  s.next = s.total - whole - floordiv(rest + s.part, s.rule.window)
end

local function queue_after(s, n)
  local after, wait = passed(s, s.used - n), s.rule.wait
  if wait > 0 then
    if s.delay - wait > after then after = s.delay - wait end
    for i = 1, #s.gaps, 2 do
      if s.gaps[i + 1] >= s.room + n then
        local from, count = open(s, i)
        local soon = count >= s.room + n and s.room + n <= s.rule.burst and passed(s, s.total - from) - wait
        if soon and soon < after then after = soon end
      end
    end
  end
  return after > 0 and after or 0
end

local function queue_outlook(s)
  local wait = s.rule.wait
  begin(s)
  s.delay = passed(s, 0)
  local room = s.rule.burst + 1 - units(s)
  if wait > 0 and s.delay > wait and room > 0 then room = 0 end
  for i = 1, #s.gaps, 2 do
    if s.gaps[i + 1] > room then
      local from, count = open(s, i)
      if count > s.rule.burst then count = s.rule.burst end -- of a version with a longer queue
      if count > room and (wait == 0 or passed(s, s.total - from) <= wait) then room = count end
    end
  end
  s.used = s.rule.burst + 1 - room
  s.room, s.more, s.reset = room, 0, 0
  if s.used > 0 then s.more, s.reset = queue_after(s, room < 0 and 1 - room or 1), queue_after(s, s.used) end
end

-- drops what has passed, which comes first
local function trim(s)
  if #s.gaps == 0 or s.gaps[1] >= s.next then return end
  local left = {}
  for i = 1, #s.gaps, 2 do
    local from, count = open(s, i)
    if count > 0 then left[#left + 1], left[#left + 2] = from, count end
  end
  s.gaps = left
end

local function take_queue(s, n)
  s.kept = nil
  for i = 1, #s.gaps, 2 do
    local from, count, delay
    if s.gaps[i + 1] >= n then
      from, count = open(s, i)
      delay = count >= n and passed(s, s.total - from)
    end
    if delay and (s.rule.wait == 0 or delay <= s.rule.wait) then
      s.gaps[i], s.gaps[i + 1], s.delay_taken = from + n, count - n, delay
      if count == n then
        table.remove(s.gaps, i)
        table.remove(s.gaps, i)
      end
      local ends = passed(s, s.total - from - n)
      trim(s)
      queue_outlook(s)
      s.whole, s.reset = s.reset, ends -- the end of its turn names it for a return
      return
    end
  end
  trim(s)
  s.delay_taken = s.delay
  append(s, n)
  s.total = s.total + n
  queue_outlook(s)
end

-- whether a script wrote a value
local function is_queue(form, size) return form == 110 and size == 27 or form == 115 and size >= 51 and (size - 39) % 12 == 0 end

local function decode_queue(value, rule, now)
  local s = {rule = rule, now = now, ahead = 0, part = 0, gaps = {}, total = 0}
  if value then
    local form = byte(value, 1)
    if not is_queue(form, #value) then return nil end
    local stop, part, limit, last = u56(value, 2), u48(value, 9), u48(value, 15), u56(value, 21)
    if part >= limit then return nil end
    if last > now then -- the clock has stepped back: the queue is as long as it was
      stop = stop > last - now and stop - last + now or 0
      if stop >= now then
        s.redated, s.kept = true, sub(value, 1, 1) .. be56(stop) .. sub(value, 9, 20) .. be56(now) .. sub(value, 28)
      end
    end
    if limit ~= rule.limit and part > 0 then -- in its own parts, rounded up
      local whole, rest = muldiv(part, rule.limit, limit)
      part = rest > 0 and whole + 1 or whole
      if part == rule.limit then stop, part = stop + 1, 0 end
    end
    s.stop, s.rest = stop, part -- @debt
    if stop >= now then
      s.ahead, s.part = stop - now, part
      if form == 115 and limit == rule.limit and u48(value, 28) == rule.window then -- or they count in other units
        s.total = u48(value, 34)
        for i = 40, #value, 6 do s.gaps[#s.gaps + 1] = u48(value, i) end
      end
    end
  end
  queue_outlook(s)
  return s
end

local function encode_queue(s, stamp)
  local life = s.ahead + 1
  if s.kept then return s.kept, life end
  local value = be56(s.now + s.ahead) .. be48(s.part) .. be48(s.rule.limit) .. stamp
  if #s.gaps == 0 then return 'n' .. value, life end
  local out = {'s', value, be48(s.rule.window), be48(s.total)}
  for i = 1, #s.gaps do out[i + 4] = be48(s.gaps[i]) end
  return table.concat(out), life
end

local queue = small(decode_queue, take_queue, queue_after, encode_queue)
algorithms[6] = queue

function queue.prepare(rule, params)
  local burst, wait = string.match(params, '^(%d+),(%d+)$')
  rule.burst, rule.wait = tonumber(burst), tonumber(wait)
  rule.capacity = rule.burst + 1
end

function queue.need(rule, k, cost, at)
  local s = states[k]
  if s and s.whole then s.reset, reset[k], s.whole = s.whole, s.whole, nil end -- of the queue again
end

-- @debt
queue.remembered = 60000000 -- us for which a queue that debts left empty is remembered, for others to add to

-- Moves the end as far back as units that come at a time do, until the queue has most units.
function queue.owe(s, n, at, _, most)
  local rule, now, stop, part = s.rule, s.now, s.stop or 0, s.rest or 0
  most = most or owed_most(rule, rule.burst + 1)
  if n > most then n = most end
  local longest, rest = muldiv(most, rule.window, rule.limit)
  rest = rest % rule.limit
  if s.ahead > longest or s.ahead == longest and s.part > rest then longest, rest = s.ahead, s.part end
  if stop < at then stop, part = at, 0 end
  s.ahead, s.part, s.kept = stop - now, part, nil
  append(s, n)
  if s.ahead > longest or s.ahead == longest and s.part > rest then
    s.ahead, s.part, s.gaps = longest, rest, {}
  end
  s.total = s.total + n
  begin(s)
  trim(s)
  for i = 1, #s.gaps, 2 do s.gaps[i] = s.gaps[i] - s.next end -- or numbers would end
  if #s.gaps > 0 then s.total = s.total - s.next end
  return true
end

-- Owe of units of others: see add_units in tellers.lua.
function queue.add_units(rule, value, now, n, stamp)
  if #value ~= 27 or byte(value, 1) ~= 110 or u48(value, 15) ~= rule.limit or u56(value, 21) > now then return nil end
  local stop, part, most = u56(value, 2), u48(value, 9), rule.capacity
  if part >= rule.limit then return nil end
  if stop < now then stop, part = now, 0 end
  local longest, rest = muldiv(most, rule.window, rule.limit)
  local ahead = stop - now
  if ahead > longest or ahead == longest and part > rest then longest, rest = ahead, part end
  local whole, more = muldiv(n < most and n or most, rule.window, rule.limit)
  more = more + part
  part = more % rule.limit
  ahead = ahead + whole + (more - part)/rule.limit
  if ahead > longest or ahead == longest and part > rest then ahead, part = longest, rest end
  return 'n' .. be56(now + ahead) .. be48(part) .. sub(value, 15, 20) .. stamp, ahead + 1
end

-- @return
-- Gives back units whose turn has not come: see core/queue.go.

function queue.give_back(value, r, now)
  local form = byte(value, 1)
  if not is_queue(form, #value) then return nil, WRONG_VALUE end
  local stop, part, limit, last = u56(value, 2), u48(value, 9), u48(value, 15), u56(value, 21)
  if limit ~= r.limit or limit > r.window or r.at > now or last > now or stop < now then return 0 end
  local s = {rule = r, ahead = stop - now, part = part}

  local ends, done = r.at + u56(r.list, r.i + 21), part > 0 and stop + 1 or stop
  if done < ends then return 0 end
  local behind = muldiv(done - ends, limit, r.window)
  if now + passed(s, behind) ~= ends then -- times are rounded up
    behind = behind + 1
    if now + passed(s, behind) ~= ends then return 0 end
  end

  local waiting = units(s)
  local total, gaps = waiting, ''
  if form == 115 then
    if u48(value, 28) ~= r.window then return 0 end
    total, gaps = u48(value, 34), sub(value, 40)
  end
  local first = total - waiting + 1 -- behind the one that is passing
  local from, to = total - behind - r.cost, total - behind
  if from < first then from = first end
  local given = to - from
  if given <= 0 then return 0 end

  local function gap(i) -- its first unit, and the one behind it
    local g = u48(gaps, 12*i + 1)
    return g, g + u48(gaps, 12*i + 7)
  end
  local low, high = 0, #gaps / 12 -- the gaps up to low are before the turn, those from high on are behind it
  while low < high do
    local middle = (low + high - (low + high) % 2) / 2
    if gap(middle) < to then low = middle + 1 else high = middle end
  end
  local before, after = sub(gaps, 1, 12*low), sub(gaps, 12*low + 1)
  if low > 0 then
    local g, h = gap(low - 1)
    if h > from then return 0 end -- it is free already
    if h == from then from, before = g, sub(before, 1, -13) end
  end
  if after ~= '' then
    local g, h = gap(low)
    if g == to then to, after = h, sub(after, 13) end
  end
  if from < first then from = first end
  if to == total then
    local whole, rest = muldiv(to - from, r.window, limit)
    stop, part = stop - whole, part - rest
    if part < 0 then stop, part = stop - 1, part + limit end
    total = from
  else
    before = before .. be48(from) .. be48(to - from)
  end
  gaps = before .. after
  while gaps ~= '' do -- drop those that have passed
    local g, h = gap(0)
    gaps = sub(gaps, 13)
    if h > first then
      if g < first then g = first end
      gaps = be48(g) .. be48(h - g) .. gaps
      break
    end
  end
  if #gaps > 6144 then return 0 end -- core.MaxGaps
  value = be56(stop) .. be48(part) .. be48(limit) .. be56(last)
  if gaps == '' then return given, 'n' .. value, stop - now + 1 end
  if total > 140737488355328 then return 0 end -- numbers end at twice that
  return given, 's' .. value .. be48(r.window) .. be48(total) .. gaps, stop - now + 1
end
