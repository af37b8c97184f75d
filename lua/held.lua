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

-- Writes a hold. If it has a new time at which it ends or is forgotten, that is stop; so far, the
-- first of the key does at soonest. The two keys, which live until lives, then live until least,
-- or for twice as long, so that most calls change nothing.
local function write_hold(hash, ends, id, hold, stop, soonest, lives, least, now)
  local fields, kept = {id, hold}, nil
  if stop then
    call('ZADD', ends, text_of(stop), id)
    if not soonest or stop < soonest + 0 then fields[3], fields[4] = 'n', text_of(stop) end
  end
  if not lives or lives + 0 < least then
    kept = 2*least - now
    fields[#fields + 1], fields[#fields + 2] = 't', text_of(kept)
  end
  call('HSET', hash, unpack(fields))
  if kept then
    for _, key in ipairs({hash, ends}) do call('PEXPIRE', key, text_of((kept - now) / 1000)) end
  end
end
