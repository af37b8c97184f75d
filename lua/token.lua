-- Reads the token of the data beside a key, and counts the reading. Data that is emptied has no
-- token, and data of an earlier time has fewer readings than a process remembers. Both get
-- another token, so that every process sees the loss, whichever reads first.
--
-- KEYS[1]   the token
-- ARGV[1]   16 random bytes
-- ARGV[2]   the token that the caller read last, or ''
-- ARGV[3]   ms for which it is kept
-- reply     the token
--
-- A token is T, 16 bytes that tell it from others, and how often it was read, 7 bytes.
-- @value T 24

local value = call('GET', keys[1])
local is = value and #value == 24 and sub(value, 1, 1) == 'T'
local id, n = is and sub(value, 2, 17), is and u56(value, 18)
if not is or #argv[2] == 24 and id == sub(argv[2], 2, 17) and n < u56(argv[2], 18) then
  id, n = argv[1], 0
end
call('SET', keys[1], 'T' .. id .. be56(n + 1), 'PX', argv[3])
return call('GET', keys[1])
