-- Releases leases by lease.lua, and then does what settle.lua does. The first comes first, since an
-- error of Redis in the second would leave it undone.
--
-- KEYS      those of lease.lua, and those of settle.lua
-- ARGV[1…2] how many keys and arguments lease.lua has
-- ARGV[…]   its arguments, and those of settle.lua
-- reply     that of settle.lua, and then that of lease.lua

local function release(KEYS, ARGV)
INNER
end
local function settle(KEYS, ARGV)
OTHER
end

local keys, args = ARGV[1] + 0, ARGV[2] + 2
local held = release({unpack(KEYS, 1, keys)}, {unpack(ARGV, 3, args)})
local out = settle({unpack(KEYS, keys + 1)}, {unpack(ARGV, args + 1)})
for i = 1, #held do out[#out + 1] = held[i] end
return out
