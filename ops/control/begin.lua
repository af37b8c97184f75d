-- What each script begins with. Its keys are those of Control.keys. A version is a number, which
-- grows by one with each change, and a random text: two changes never have the same version, even
-- after a failover that lost changes.
local now = redis.call('TIME')
now = now[1] * 1000 + math.floor(now[2] / 1000)
local function text(n) return string.format('%.0f', n) end
local function number(version) return tonumber(string.match(version or '', '^%d+') or 0) end
local function log(version, entry, most)
	entry.version = version
	entry.at = text(now)
	redis.call('LPUSH', KEYS[3], cjson.encode(entry))
	redis.call('LTRIM', KEYS[3], 0, most - 1)
end
local function store(name, document, expires)
	redis.call('HSET', KEYS[2], name, document)
	if expires > 0 then redis.call('ZADD', KEYS[4], text(expires), name) else redis.call('ZREM', KEYS[4], name) end
end
