-- Writes documents back that Redis has lost: those without a later change in Redis or its history. With
-- the last ones it gives the kind a version above all known ones.
local token, known, history, last = unpack(ARGV, 1, 4)
local newest = {}
for _, line in ipairs(redis.call('LRANGE', KEYS[3], 0, -1)) do
	local entry = cjson.decode(line)
	newest[entry.name] = newest[entry.name] or entry
end
local size = tonumber(redis.call('GET', KEYS[5]) or 0)
for i = 5, #ARGV, 2 do
	local name, document = ARGV[i], ARGV[i + 1]
	local expires, at = string.match(document, '^(%d+) (%d+)')
	expires, at = tonumber(expires), tonumber(at)
	local has, change = redis.call('HGET', KEYS[2], name), newest[name]
	local later = expires > 0 and expires <= now or
		has and tonumber(string.match(has, '^%d+ (%d+)') or now) >= at or
		change and (tonumber(change.at) > at or change.deleted and tonumber(change.at) == at)
	if not later then
		store(name, document, expires)
		size = size + #document - (has and #has or 0)
	end
end
redis.call('SET', KEYS[5], text(size))
if last ~= '1' then return '' end
local version = text(math.max(number(redis.call('GET', KEYS[1])), tonumber(known)) + 1) .. ' ' .. token
redis.call('SET', KEYS[1], version)
log(version, {name = '', by = 'a restore'}, tonumber(history))
return version
