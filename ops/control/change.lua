-- Writes or deletes a document. Before that it removes up to 100 documents that have ended, more than
-- it adds.
local token, what, name, by, value, ms, documents, bytes, history, note = unpack(ARGV)
local size = tonumber(redis.call('GET', KEYS[5]) or 0)
for _, ended in ipairs(redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', text(now), 'LIMIT', 0, 100)) do
	size = size - redis.call('HSTRLEN', KEYS[2], ended)
	redis.call('HDEL', KEYS[2], ended)
	redis.call('ZREM', KEYS[4], ended)
end
local old = redis.call('HSTRLEN', KEYS[2], name)
local version = text(number(redis.call('GET', KEYS[1])) + 1) .. ' ' .. token
local entry = {name = name, by = by, deleted = what == 'delete'}
local refused
if what == 'delete' then
	if old == 0 then refused = 'absent' end
	redis.call('HDEL', KEYS[2], name)
	redis.call('ZREM', KEYS[4], name)
	size = size - old
else
	local expires = 0
	if tonumber(ms) > 0 then expires = now + tonumber(ms) end
	entry.expires = text(expires)
	if note ~= '' then entry.note = note end
	local document = text(expires) .. ' ' .. text(now) .. ' ' .. #by .. ' ' .. by .. value
	if old == 0 and redis.call('HLEN', KEYS[2]) >= tonumber(documents) then refused = 'documents'
	elseif size + #document - old > tonumber(bytes) then refused = 'bytes'
	else
		store(name, document, expires)
		size = size + #document - old
	end
end
redis.call('SET', KEYS[5], text(size))
if refused then return refused end
redis.call('SET', KEYS[1], version)
log(version, entry, tonumber(history))
return version
