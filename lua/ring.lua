-- The sliding log of slidinglog.lua for limits above 128. A log of at most 128
-- units is a string as there, which most clients never outgrow. A longer one is a
-- ring in place: a decision touches the header and the slots that it needs, however
-- long the log is. A ring that has at most 64 units left becomes a string when it is
-- next written.
--
-- A version with a smaller limit or a shorter window reads and writes a ring where it is.
-- For a larger limit or a longer window, the ring is laid anew when it is next written: a
-- copy of the live slots in order. If the clock has stepped back, the whole value is read.

local ring = {}
large = ring

function ring.take(rule, k, n)
  log.take(rule, k, n) -- @inline
end

function ring.load(rule, now)
  local head, limit, window, width, modulus, upto = rule.head, rule.limit, rule.window, 4, 4294967296, '527'
  local first = #head + 1
  if not rule.short then width, modulus, upto = 6, 281474976710656, '783' end
  for k = rule.first, rule.last do
    -- the header of a ring, or all of a string
    local value = redis.pcall('GETRANGE', keys[k], '0', upto)
    local form = #value >= 30 and byte(value, 1)
    local newest = (form == RING_SHORT or form == RING_LONG) and u56(value, 24)
    if newest and newest <= now then
      load_ring(rule, now, k, value, newest) -- @inline
    elseif #value == 0 and value ~= '' then -- the table of an error
      problem[k] = WRONG_TYPE
    else
      if value == '' then value = nil end
      load_value(rule, now, k, value, head, limit, window, first, width, modulus) -- @inline
    end
  end
end

-- @rare
function ring.after(rule, k, n, now) return log.after(rule, k, n, now) end

function ring.save(rule, now, stamp, grace)
  local limit, width = rule.limit, rule.short and 4 or 6
  local ttl, head, tick, above = nil, rule.head, sub(stamp, 8 - width), sub(stamp, 1, 7 - width)
  for k = rule.first, rule.last do
    local s, n = mixed and mixed[k], taken[k]
    if not problem[k] and (n > 0 or redated[k]) then
      if s and s.stays and s.live + n >= RING_LEAST then
        write_ring(s, n, now, stamp, grace) -- @inline
      elseif not s and limit - room[k] <= STRING_MOST then
        ttl = ttl or string.format('%.0f', ceil(rule.window / 1000) + grace) -- as text: see log.save
        call('PSETEX', keys[k], ttl, head .. sub(values[k], firsts[k], width - 8) .. (n == 1 and tick or rep(tick, n)) .. above)
      else
        s = s or {width = width, slots = sub(values[k], firsts[k], width - 8), limit = limit, window = rule.window}
        write_anew(keys[k], s, n, now, grace)
      end
    end
  end
end
