-- What hold.lua, settle.lua and extend.lua share. The form of a hold and of its two keys is in
-- hold.lua.

local call, char, format, match, sub = redis.call, string.char, string.format, string.match, string.sub

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

-- What a hash has of an id: n and t, or false if no script wrote it; the hold if there is one,
-- and what parse_hold says of it.
local function read_hold(hash, id)
  local got = redis.pcall('HMGET', hash, id, 'n', 't')
  if got.err then return false end
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
    redis.pcall('ZADD', ends, text_of(stop), id)
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
