-- Returns the version, the time, and 1 with the documents that changed since a known version (nil for
-- deleted ones), 0 if the history does not go back to that, or -1 if Redis has lost it. Numbers grow
-- along the history. So it is lost if the history passes its number without it, or is complete and
-- does not have it.
local known, history = unpack(ARGV)
local version = redis.call('GET', KEYS[1]) or ''
local reply = {version, text(now), 1}
if version == known then return reply end
if known == '' then return {version, text(now), 0} end
if number(version) < number(known) then return {version, text(now), -1} end
local lines = redis.call('LRANGE', KEYS[3], 0, -1)
local seen = {}
for i, line in ipairs(lines) do
	local entry = cjson.decode(line)
	if i == 1 and entry.version ~= version then return {version, text(now), 0} end
	if entry.version == known then return reply end
	if number(entry.version) <= number(known) then return {version, text(now), -1} end
	if entry.name == '' then
		reply = {version, text(now), 0}
	elseif reply[3] == 1 and not seen[entry.name] then
		seen[entry.name] = true
		reply[#reply + 1] = entry.name
		reply[#reply + 1] = redis.call('HGET', KEYS[2], entry.name)
	end
end
return {version, text(now), #lines < tonumber(history) and -1 or 0}
