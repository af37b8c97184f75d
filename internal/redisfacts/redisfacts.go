// Package redisfacts asks a Redis server whether a store can work on it. Package
// redisstore and limitctl doctor share it. It writes nothing.
package redisfacts

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// MaxOffset is how far the clock of a server may be from that of this machine.
const MaxOffset = time.Second

// Info returns the fields of INFO.
func Info(ctx context.Context, client redis.UniversalClient) (map[string]string, error) {
	text, err := client.Info(ctx).Result()
	if err != nil {
		return nil, err
	}
	return Lines(text), nil
}

// Lines reads "name:value" lines.
func Lines(text string) map[string]string {
	m := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), ":"); ok {
			m[name] = value
		}
	}
	return m
}

// Eviction reports what a server does to keys with these settings: whether it evicts
// them when memory is full, and whether it would if maxmemory were set.
func Eviction(policy, maxmemory string) (evicts, would bool) {
	would = policy != "" && policy != "noeviction"
	return would && maxmemory != "0", would
}

// Clock returns how far the clock of the server is ahead of that of this machine, give or
// take uncertainty. The server read its clock somewhere between request and reply, so the
// uncertainty is half of the shortest of five round trips.
func Clock(ctx context.Context, client redis.UniversalClient) (offset, uncertainty time.Duration, err error) {
	shortest := time.Duration(-1)
	for range 5 {
		start := time.Now()
		now, err := client.Time(ctx).Result()
		trip := time.Since(start)
		if err != nil {
			return 0, 0, err
		}
		if shortest < 0 || trip < shortest {
			shortest = trip
			offset, uncertainty = now.Sub(start.Add(trip/2)), (trip+1)/2
		}
	}
	return offset, uncertainty, nil
}

// Bounded returns a client whose calls end with their context, and after a timeout if that
// is earlier. Only a [redis.Client] can be bounded: calls of others end after their own
// timeouts and retries. Bounded panics if the client is nil, and the text begins with of.
func Bounded(client redis.UniversalClient, timeout time.Duration, of string) redis.UniversalClient {
	if v := reflect.ValueOf(client); client == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		panic(of + ": the client is nil: write redis.NewClient(&redis.Options{Addr: \"localhost:6379\"})")
	}
	if single, ok := client.(*redis.Client); ok {
		copied := single.WithTimeout(timeout) // with options of its own
		copied.Options().ContextTimeoutEnabled = true
		return copied
	}
	return client
}

// Needed lists the commands that a store sends, and those that its scripts run.
var Needed = []string{"EVALSHA", "EVAL", "INFO", "TIME", "MGET", "EXISTS", "GET", "GETRANGE", "SET", "PSETEX", "SETRANGE", "PEXPIRE", "PTTL", "DEL"}

// Grant returns the command that lets a user run all that a store needs.
func Grant(user, prefix string) string {
	return "redis-cli ACL SETUSER " + user + " '~" + prefix + ":*' +" + strings.ToLower(strings.Join(Needed, " +"))
}

// Rights are what a server lets its user do.
type Rights struct {
	Of       map[string]string // for each command that was tried: why it is refused, or ""
	Writable bool              // a command that writes was run, and accepted
	WriteErr string            // why the server refuses writes, such as READONLY …
	Err      error             // why nothing was tried
}

// Refused returns the commands that the user may not run, in the order of [Needed].
func (r Rights) Refused() (refused []string) {
	for _, command := range Needed {
		if r.Of[command] != "" {
			refused = append(refused, command)
		}
	}
	return refused
}

// Unknown reports whether the server does not know a command. HasErrorPrefix takes "ERR " away before
// it compares.
func Unknown(err error) bool { return redis.HasErrorPrefix(err, "unknown command") }

// refusal returns an error as a text if it is about the rights of the user, or else "".
func refusal(err error) string {
	if err != nil && NoRight(err.Error()) {
		return err.Error()
	}
	return ""
}

// dryRun runs commands that change nothing, since the key does not exist: SET has XX,
// SETRANGE writes no bytes, and PSETEX has an invalid time, which is an error after
// those about rights. It returns the name of each command and its error, or "".
const dryRun = `
local out = {}
for _, command in ipairs({
  {'TIME'}, {'MGET', KEYS[1]}, {'EXISTS', KEYS[1]}, {'GET', KEYS[1]}, {'GETRANGE', KEYS[1], '0', '1'},
  {'SET', KEYS[1], '', 'XX', 'PX', '1'}, {'PSETEX', KEYS[1], '0', ''}, {'SETRANGE', KEYS[1], '0', ''},
  {'PEXPIRE', KEYS[1], '1'}, {'PTTL', KEYS[1]}, {'DEL', KEYS[1]},
}) do
  local reply = redis.pcall(unpack(command))
  out[#out + 1] = command[1]
  out[#out + 1] = type(reply) == 'table' and reply.err or ''
end
return out`

// Ask runs the commands of a decision, except INFO, in a form that changes nothing.
// Errors that are not about rights are about the state of the server. In a Cluster, the
// error is MOVED if the slot of the key is on another server.
func Ask(ctx context.Context, client redis.UniversalClient, key string) (r Rights) {
	keys := []string{key}
	replies, err := client.Eval(ctx, dryRun, keys).StringSlice()
	var reply redis.Error
	switch {
	case err == nil || NoRight(err.Error()):
		sha := client.EvalSha(ctx, strings.Repeat("0", 40), keys).Err()
		r.Of = map[string]string{"EVAL": refusal(err), "EVALSHA": refusal(sha)}
		if Unknown(sha) {
			r.WriteErr = sha.Error()
		}
	case errors.As(err, &reply) && !redis.HasErrorPrefix(err, "MOVED"):
		r.WriteErr = err.Error() // such as READONLY, instead of running the script
	default:
		r.Err = err // nothing was tried
	}
	for i := 0; i+1 < len(replies); i += 2 {
		command, problem := replies[i], plain(replies[i+1])
		if command == "PSETEX" && strings.Contains(problem, "invalid expire time") {
			problem = ""
		}
		switch {
		case problem == "" || NoRight(problem):
			r.Of[command] = problem
			r.Writable = r.Writable || problem == "" && (command == "SET" || command == "SETRANGE")
		case r.WriteErr == "":
			r.WriteErr = problem
		}
	}
	return r
}

// plain returns the error of a command in a script as Redis 7 has it. Redis 6 has
// "@user_script: 9: -OOM command not allowed …\r\n".
func plain(problem string) string {
	if strings.HasPrefix(problem, "@") {
		if _, inner, found := strings.Cut(problem, ": -"); found {
			problem = inner
		}
	}
	return strings.TrimSpace(problem)
}

// NoRight reports whether an error is about the rights of the user. Commands in
// scripts have other errors, and Redis 6 has other ones than Redis 7.
func NoRight(problem string) bool {
	return strings.Contains(problem, "NOPERM") || strings.Contains(problem, "ACL failure") ||
		strings.Contains(problem, "can't run this command") || strings.Contains(problem, "can't access at least one of the keys") ||
		strings.Contains(problem, "can't publish to the channel")
}

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
