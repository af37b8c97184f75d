-- Gives back to the algorithms that count, and to the queue: see the file of
-- each for its value. The twins of the methods in core/return.go.

local function least(a, b) return a < b and a or b end

local function return_window(value, r, now)
  if #value ~= 14 or byte(value, 1) ~= 101 then return nil, WRONG_VALUE end
  local start, count = u56(value, 2), u48(value, 9)
  local from, to = start, start + r.window
  if r.periods ~= '' then from, to = period(r, now) end
  if not from then return nil, WRONG_CLOCK end
  if start ~= from or r.at < from or r.at > now or now >= to then return 0 end
  local given = least(r.cost, count)
  if given == count then return given, '' end
  return given, sub(value, 1, 8) .. be48(count - given), to - now
end

local function return_cells(value, r, now)
  local n = (#value - 15) / 6
  if n < 1 or n % 1 ~= 0 or byte(value, 1) ~= 102 then return nil, WRONG_VALUE end
  local newest, length, keep = u56(value, 2), u56(value, 9), r.cells + 1
  if length ~= ceildiv(r.window, r.cells) or n ~= keep then return 0 end
  local cell = floordiv(r.at, length)
  if r.at > now or cell <= floordiv(now, length) - keep or cell > newest or cell <= newest - keep then return 0 end
  local place = 16 + 6*(newest - cell)
  local count = u48(value, place)
  local given = least(r.cost, count)
  local rest = sub(value, 1, place - 1) .. be48(count - given) .. sub(value, place + 6)
  if sub(rest, 16) == rep('\0', 6*keep) then return given, '' end
  return given, rest, (newest + keep)*length - now
end

local function return_counter(value, r, now)
  if #value ~= 26 or byte(value, 1) ~= 103 then return nil, WRONG_VALUE end
  local index, current, previous = u56(value, 2), u48(value, 9), u48(value, 15)
  local mine, given = floordiv(r.at, r.window), 0
  if u48(value, 21) ~= r.window or r.at > now or floordiv(now, r.window) - mine > 1 then return 0 end
  if mine == index then
    given = least(r.cost, current)
    current = current - given
  elseif mine == index - 1 then
    given = least(r.cost, previous)
    previous = previous - given
  end
  if current + previous == 0 then return given, '' end
  return given, sub(value, 1, 8) .. be48(current) .. be48(previous) .. sub(value, 21), (index + 2)*r.window - now
end

local function return_line(value, r, now)
  if #value ~= 20 or byte(value, 1) ~= 105 then return nil, WRONG_VALUE end
  local stop, part, limit = u56(value, 2), u48(value, 9), u48(value, 15)
  if limit ~= r.limit or limit > r.window or r.at > now or stop < now or
      (part > 0 and stop + 1 or stop) ~= r.at + r.reset then return 0 end
  local whole, rest = muldiv(stop - now, limit, r.window)
  local given = least(r.cost, whole + ceildiv(rest + part, r.window) - 1) -- but the one that is passing
  if given <= 0 then return 0 end
  whole, rest = muldiv(given, r.window, limit)
  stop, part = stop - whole, part - rest
  if part < 0 then stop, part = stop - 1, part + limit end
  return given, 'i' .. be56(stop) .. be48(part) .. be48(limit), stop - now + 1
end
