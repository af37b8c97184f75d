-- What hold.lua, settle.lua and extend.lua share. The form of a hold and of its two keys is in
-- hold.lua.

local call, char, format, match, sub = redis.call, string.char, string.format, string.match, string.sub

-- a time or a number of units as text
local function text_of(n) return format('%.0f', n) end

-- the time of the call
local function time_of(now)
  if now ~= '' then return now + 0 end
  local t = call('TIME')
  return t[1]*1000000 + t[2]
end

-- Writes a hold that ends or is forgotten at stop; so far, the first of the key does at soonest.
local function write_hold(hash, ends, id, hold, stop, soonest)
  call('HSET', hash, id, hold)
  call('ZADD', ends, text_of(stop), id)
  if not soonest or stop < soonest + 0 then call('HSET', hash, 'n', text_of(stop)) end
end

-- Has the two keys, which live until lives, live until least; then for twice as long, so that most
-- calls change nothing.
local function keep_holds(hash, ends, lives, least, now)
  if lives and lives + 0 >= least then return end
  local kept = 2*least - now
  call('HSET', hash, 't', text_of(kept))
  for _, key in ipairs({hash, ends}) do call('PEXPIRE', key, text_of((kept - now) / 1000)) end
end
