package redisfacts

import (
	"context"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"
)

// NeededByControl lists the commands that package control sends, and those that its
// scripts run.
var NeededByControl = []string{"EVALSHA", "EVAL", "TIME", "GET", "SET", "HGET", "HSET", "HDEL", "HLEN", "HSTRLEN", "HSCAN",
	"ZADD", "ZREM", "ZRANGEBYSCORE", "LPUSH", "LTRIM", "LRANGE"}

// GrantControl returns the command that lets a user run all that package control needs.
func GrantControl(user, prefix string) string {
	return "redis-cli ACL SETUSER " + user + " '~" + prefix + ":control:*' +" +
		strings.ToLower(strings.Join(NeededByControl, " +"))
}

// ControlKey returns a key of package control.
func ControlKey(prefix, kind, part string) string {
	return prefix + ":control:{" + prefix + "}:" + kind + ":" + part
}

// controlDryRun runs commands that change nothing, since the key does not exist: HSET
// has a field without a value, which is an error after those about rights, and ZADD has
// XX. LPUSH would make a list, so it is run on a string, if there is one.
var controlDryRun = tryEach(`
  {'TIME'}, {'GET', KEYS[1]}, {'SET', KEYS[1], '', 'XX'}, {'HGET', KEYS[1], 'f'}, {'HSET', KEYS[1], 'f', 'v', 'g'},
  {'HDEL', KEYS[1], 'f'}, {'HLEN', KEYS[1]}, {'HSTRLEN', KEYS[1], 'f'}, {'HSCAN', KEYS[1], '0'}, {'ZADD', KEYS[1], 'XX', '0', 'm'},
  {'ZREM', KEYS[1], 'm'}, {'ZRANGEBYSCORE', KEYS[1], '-inf', '0', 'LIMIT', '0', '1'}, {'LTRIM', KEYS[1], '0', '0'},
  {'LRANGE', KEYS[1], '0', '0'},
`, `
for i = 2, #KEYS do
  if type(redis.pcall('GET', KEYS[i])) == 'string' then
    commands[#commands + 1] = {'LPUSH', KEYS[i], ''}
    break
  end
end
`)

// AskControl runs the commands of package control in a form that changes nothing.
func AskControl(ctx context.Context, client redis.UniversalClient, prefix string) (r Rights) {
	const own = "limit-check" // a kind of its own
	keys := []string{ControlKey(prefix, own, "documents")}
	for _, kind := range []string{"bans", "overrides", "policy"} {
		keys = append(keys, ControlKey(prefix, kind, "version"))
	}
	replies, err := r.try(ctx, client, controlDryRun, keys)
	if err != nil {
		r.Err = err
		return r
	}
	for i := 0; i+1 < len(replies); i += 2 {
		r.Of[replies[i]] = refusal(errors.New(replies[i+1]))
	}
	return r
}
