package control

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// The keys of each script are those of Control.keys. A version is a number, which
// grows by one with each change, and a random text: two changes never have the same
// version, even after a failover that lost changes.

const begin = `
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
`

// changeScript writes or deletes a document. Before that it removes up to 100
// documents that have ended, more than it adds.
var changeScript = redis.NewScript(begin + `
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
`)

// changesScript returns the version, the time, and 1 with the documents that changed
// since a known version (nil for deleted ones), 0 if the history does not go back to
// that, or -1 if Redis has lost it. Numbers grow along the history. So it is lost if the
// history passes its number without it, or is complete and does not have it.
var changesScript = redis.NewScript(begin + `
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
`)

// restoreScript writes documents back that Redis has lost: those without a later
// change in Redis or its history. With the last ones it gives the kind a version above
// all known ones.
var restoreScript = redis.NewScript(begin + `
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
`)

// number returns the number of a version, 0 for none.
func number(version string) int64 {
	digits, _, _ := strings.Cut(version, " ")
	n, _ := strconv.ParseInt(digits, 10, 64)
	return n
}

var errInvalid = errors.New("an invalid document")

// encode returns a document as Redis has it: when it ends and was written, in
// milliseconds, the length of By, By, and the value.
func (d *Document) encode() string {
	return strconv.FormatInt(d.expires, 10) + " " + strconv.FormatInt(d.At.UnixMilli(), 10) + " " + strconv.Itoa(len(d.By)) + " " + d.By + string(d.Value)
}

// decode reads a document at a time of Redis, which is the time local of this process.
func decode(text string, now int64, local time.Time) (d Document, err error) {
	var fields [3]int64
	for i := range fields {
		field, rest, ok := strings.Cut(text, " ")
		if fields[i], err = strconv.ParseInt(field, 10, 64); !ok || err != nil || fields[i] < 0 {
			return d, errInvalid
		}
		text = rest
	}
	if fields[2] > int64(len(text)) {
		return d, errInvalid
	}
	d = Document{By: text[:fields[2]], Value: []byte(text[fields[2]:]), At: time.UnixMilli(fields[1]), expires: fields[0]}
	if d.expires > 0 {
		left := min(d.expires-now, int64(1<<62/time.Millisecond))
		d.Expires = local.Add(time.Duration(left) * time.Millisecond)
	}
	return d, nil
}
