-- What hold.lua, settle.lua and extend.lua share.
--
-- A key with few holds has them in one string, since a hash and a sorted set cost three times as
-- much. It becomes these when it has many, or if a call needs what is not done with a string, and
-- is a string again once all of its holds have gone.
--
-- string   'H'  first:16, and for each hold id:24  state:1  stop:16  at:16  units:6  remaining:15
--          reset:16. The units are big-endian, and other numbers digits behind spaces: miniredis
--          reads digits behind zeros as octal
-- hash     by the id of each hold its state, stop, units and, unless it was settled, at, remaining,
--          reset and the units that stay when it ends; n is first, and t when the two keys end
--
-- state    L it lives, or K if it stays charged when it ends; E it has ended; S it was settled
-- stop     when it ends, or is forgotten, us. In the sorted set it stays where it would have ended,
--          if it is not forgotten before, until it is looked at then
-- units    that count for it
-- at, remaining, reset   of the admission its time, and what remained and the us until the quota
--          was full, or 0 in a string if the algorithm does not need that
-- first    before that time nothing ends, or is to be forgotten

local call, pcall, byte, format, match, sub = redis.call, redis.pcall, string.byte, string.format, string.match, string.sub

-- the faster of two, or on servers of 32 bits the one that can write a time
local WHOLE = format('%d', 4294967296) == '4294967296' and '%d' or '%.0f'

-- a time or a number of units as text
local function text_of(n) return format(WHOLE, n) end

-- the time of the call
local function time_of(now)
  if now ~= '' then return now + 0 end
  local t = call('TIME')
  return t[1]*1000000 + t[2]
end

-- The state of a hold, when it ends or is forgotten, its units, and where the rest begins; or nil
-- if no script wrote it.
local function parse_hold(hold)
  local state, stop, units, rest = match(hold, '^([LE]) (%d+) (%d+)() %d+ %d+ %d+ %d+$')
  if not state then state, stop, units, rest = match(hold, '^(S) (%d+) (%d+)()$') end
  if state and #stop < 17 and #units < 16 then return state, stop, units, rest end
end

-- a number of a string, or nil if no script wrote it
local function number_in(s, first, last) return match(sub(s, first, last), '^ *(%d+)$') end

-- Makes a string a hash and a sorted set. It returns false if no script wrote it.
local function unfold(hash, ends, now)
  local value = pcall('GET', hash)
  local first = type(value) == 'string' and byte(value) == 72 and (#value - 17) % 94 == 0 and number_in(value, 2, 17)
  if not first then return false end
  local fields, scores, left = {'n', first}, {}, call('PTTL', hash)
  if left < 0 then left = 172800000 end -- something else took its TTL: no hold lives for two days
  for i = 18, #value, 94 do
    local id, state, behind = match(value, '^(%x+)([LKES])()', i)
    local stop, at, remaining, reset = number_in(value, i + 25, i + 40), number_in(value, i + 41, i + 56), number_in(value, i + 63, i + 77), number_in(value, i + 78, i + 93)
    if behind ~= i + 25 or not (stop and at and remaining and reset) then return false end
    local n = 0
    for j = 57, 62 do n = n*256 + byte(value, i + j) end
    local units = text_of(n)
    local text = (state == 'K' and 'L' or state) .. ' ' .. stop .. ' ' .. units
    if state ~= 'S' then text = table.concat({text, at, remaining, reset, state == 'K' and units or '0'}, ' ') end
    fields[#fields + 1], fields[#fields + 2] = id, text
    scores[#scores + 1], scores[#scores + 2] = stop, id
  end
  fields[#fields + 1], fields[#fields + 2] = 't', text_of(now + 1000*left)
  call('DEL', hash)
  call('HSET', hash, unpack(fields))
  pcall('ZADD', ends, unpack(scores))
  for _, key in ipairs({hash, ends}) do call('PEXPIRE', key, left) end
end

-- What a hash has of an id: n and t, or false if no script wrote it; the hold if there is one,
-- and what parse_hold says of it.
local function read_hold(hash, ends, id, now)
  local got = pcall('HMGET', hash, id, 'n', 't')
  if got.err then
    if unfold(hash, ends, now) == false then return false end
    got = call('HMGET', hash, id, 'n', 't')
  end
  local hold, soonest, lives = got[1], tonumber(got[2] or nil), tonumber(got[3] or nil)
  if not hold then return soonest, lives end
  local state, stop, units, rest = parse_hold(hold)
  if not state then return false end
  return soonest, lives, hold, state, stop, units, rest
end

-- Writes a hold. If it has a new time at which it ends or is forgotten, that is stop; so far, the
-- first of the key does at soonest. The two keys, which live until lives, then live until least,
-- or for twice as long, so that most calls change nothing. It is called when units have been
-- written, which an error would not undo: if the sorted set is something else, nothing ends the
-- hold until hold.lua looks at it and finds that.
local function write_hold(hash, ends, id, hold, stop, soonest, lives, least, now)
  local fields, kept = {id, hold}, nil
  if stop then
    pcall('ZADD', ends, text_of(stop), id)
    if not soonest or stop < soonest then fields[3], fields[4] = 'n', text_of(stop) end
  end
  if not lives or lives < least then
    kept = 2*least - now
    fields[#fields + 1], fields[#fields + 2] = 't', text_of(kept)
  end
  call('HSET', hash, unpack(fields))
  if kept then
    for _, key in ipairs({hash, ends}) do call('PEXPIRE', key, text_of((kept - now) / 1000)) end
  end
end
