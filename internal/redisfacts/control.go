package redisfacts

import (
	"context"
	"fmt"
	"slices"
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

// ControlRights are what a server lets its user do with documents.
type ControlRights struct {
	Of  map[string]string // for each command that was tried: why it is refused, or ""
	Err error             // why nothing was tried
}

// Refused returns the commands that are refused, in the order of [NeededByControl].
func (r ControlRights) Refused() []string {
	return slices.DeleteFunc(slices.Clone(NeededByControl), func(command string) bool { return r.Of[command] == "" })
}

// controlDryRun runs commands that change nothing, since the key does not exist: HSET
// has a field without a value, which is an error after those about rights, and ZADD has
// XX. LPUSH would make a list, so it is run on a string, if there is one.
const controlDryRun = `
local out = {}
local commands = {
  {'TIME'}, {'GET', KEYS[1]}, {'SET', KEYS[1], '', 'XX'}, {'HGET', KEYS[1], 'f'}, {'HSET', KEYS[1], 'f', 'v', 'g'},
  {'HDEL', KEYS[1], 'f'}, {'HLEN', KEYS[1]}, {'HSTRLEN', KEYS[1], 'f'}, {'HSCAN', KEYS[1], '0'}, {'ZADD', KEYS[1], 'XX', '0', 'm'},
  {'ZREM', KEYS[1], 'm'}, {'ZRANGEBYSCORE', KEYS[1], '-inf', '0', 'LIMIT', '0', '1'}, {'LTRIM', KEYS[1], '0', '0'},
  {'LRANGE', KEYS[1], '0', '0'},
}
for i = 2, #KEYS do
  if type(redis.pcall('GET', KEYS[i])) == 'string' then
    commands[#commands + 1] = {'LPUSH', KEYS[i], ''}
    break
  end
end
for _, command in ipairs(commands) do
  local reply = redis.pcall(unpack(command))
  out[#out + 1] = command[1]
  out[#out + 1] = type(reply) == 'table' and reply.err or ''
end
return out`

// AskControl runs the commands of package control in a form that changes nothing.
func AskControl(ctx context.Context, client redis.UniversalClient, prefix string) ControlRights {
	r := ControlRights{Of: make(map[string]string)}
	const own = "limit-check" // a kind of its own
	keys := []string{ControlKey(prefix, own, "documents")}
	for _, kind := range []string{"bans", "overrides", "policy"} {
		keys = append(keys, ControlKey(prefix, kind, "version"))
	}
	said := func(err error) string {
		if err != nil && NoRight(err.Error()) {
			return err.Error()
		}
		return ""
	}
	replies, err := client.Eval(ctx, controlDryRun, keys).StringSlice()
	if err != nil && said(err) == "" {
		r.Err = err
		return r
	}
	r.Of["EVAL"] = said(err)
	for i := 0; i+1 < len(replies); i += 2 {
		if problem := replies[i+1]; NoRight(problem) {
			r.Of[replies[i]] = problem
		} else {
			r.Of[replies[i]] = ""
		}
	}
	err = client.EvalSha(ctx, strings.Repeat("0", 40), keys).Err()
	r.Of["EVALSHA"] = said(err)
	return r
}

// Explain returns the refused commands with the reason of each.
func (r ControlRights) Explain() (list []string) {
	for _, command := range r.Refused() {
		list = append(list, fmt.Sprintf("%s (%s)", command, r.Of[command]))
	}
	return list
}
