package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/lua"
	"github.com/routelimit/limit/redisstore"
)

// needed lists the commands that a store sends, and those that its scripts run.
var needed = []string{"EVALSHA", "EVAL", "INFO", "TIME", "MGET", "EXISTS", "GET", "GETRANGE", "SET", "PSETEX", "SETRANGE", "PEXPIRE", "PTTL", "DEL"}

// The rule and the key that doctor decides on, always with a cost of 0.
const (
	ownPolicy = "limitctl doctor"
	ownRule   = "doctor"
	ownKey    = "doctor"
)

// askScript runs the library's script as a program does, with a cost of 0, which
// writes nothing. Then it asks what the user may do.
func askScript(ctx context.Context, client *redis.Client, prefix string, n *Node) {
	// The default Timeout would end the slow calls that are to be measured.
	store := redisstore.New(client, &redisstore.Options{Prefix: prefix, Timeout: client.Options().ReadTimeout})
	charges := []core.Charge{{Rule: ownRule, Key: ownKey, Quota: core.Quota{Limit: 1, Window: time.Second.Microseconds()}}}
	policy := ownPolicy
	_, err := store.Take(ctx, policy, charges)
	for i := 1; redis.HasErrorPrefix(err, "MOVED"); i++ { // the slot is on another node
		if i > 500 {
			n.ScriptErr = "found no policy with a slot on this node"
			n.RightsErr = n.ScriptErr
			return
		}
		policy = fmt.Sprint(ownPolicy, " ", i)
		_, err = store.Take(ctx, policy, charges)
	}
	if err != nil {
		n.ScriptErr = err.Error()
	} else {
		n.Script, n.ScriptErr = measure(func() error {
			_, err := store.Take(ctx, policy, charges)
			return err
		})
	}
	key := lua.Key(prefix, policy, ownRule, ownKey)
	askWrite(ctx, client, key, n)
	askRights(ctx, client, key, n)
}

// dryRun runs commands that change nothing, since the key does not exist: SET has XX,
// SETRANGE writes no bytes. PSETEX has no such form.
const dryRun = `
local out = {}
for _, command in ipairs({
  {'TIME'}, {'MGET', KEYS[1]}, {'EXISTS', KEYS[1]}, {'GET', KEYS[1]}, {'GETRANGE', KEYS[1], '0', '1'},
  {'SET', KEYS[1], '', 'XX', 'PX', '1'}, {'SETRANGE', KEYS[1], '0', ''}, {'PEXPIRE', KEYS[1], '1'},
  {'PTTL', KEYS[1]}, {'DEL', KEYS[1]},
}) do
  local reply = redis.pcall(unpack(command))
  out[#out + 1] = command[1]
  out[#out + 1] = type(reply) == 'table' and reply.err or ''
end
return out`

// askWrite runs the commands of a decision in a form that changes nothing. Errors
// that are not about rights are about the state of the server.
func askWrite(ctx context.Context, client *redis.Client, key string, n *Node) {
	n.Rights, n.RightsBy = make(map[string]string), "a script that writes nothing"
	switch {
	case n.InfoErr == "":
		n.Rights["INFO"] = ""
	case noRight(n.InfoErr):
		n.Rights["INFO"] = n.InfoErr
	}
	replies, err := client.Eval(ctx, dryRun, []string{key}).StringSlice()
	if reply := redis.Error(nil); err != nil && errors.As(err, &reply) && !noRight(err.Error()) && !redis.HasErrorPrefix(err, "MOVED") {
		n.WriteErr = err.Error() // such as READONLY, instead of running the script
	} else if err != nil && noRight(err.Error()) {
		n.Rights["EVAL"] = err.Error()
	} else if err != nil {
		n.RightsErr = "EVAL: " + err.Error()
	}
	if err != nil {
		return
	}
	n.Rights["EVAL"] = ""
	if strings.HasPrefix(n.ScriptErr, "NOPERM") { // commands in the script have other errors
		n.Rights["EVALSHA"] = n.ScriptErr
	} else if n.ScriptErr == "" {
		n.Rights["EVALSHA"] = ""
	}
	for i := 0; i+1 < len(replies); i += 2 {
		command, problem := replies[i], replies[i+1]
		switch {
		case problem == "" || noRight(problem):
			n.Rights[command] = problem
			n.Writable = n.Writable || problem == "" && (command == "SET" || command == "SETRANGE")
		case n.WriteErr == "":
			n.WriteErr = problem
		}
	}
}

// noRight reports whether an error is about the rights of the user. Commands in
// scripts have other errors, and Redis 6 has other ones than Redis 7.
func noRight(problem string) bool {
	return strings.Contains(problem, "NOPERM") || strings.Contains(problem, "ACL failure") ||
		strings.Contains(problem, "can't run this command") || strings.Contains(problem, "can't access at least one of the keys")
}

// askRights asks what the user may do by ACL DRYRUN, which Redis 7 has. Without it,
// the results of askWrite stay.
func askRights(ctx context.Context, client *redis.Client, key string, n *Node) {
	user, err := client.Do(ctx, "ACL", "WHOAMI").Text()
	if err != nil {
		return
	}
	n.User = user
	rights := make(map[string]string)
	for _, command := range needed {
		args := map[string][]any{
			"EVALSHA":  {strings.Repeat("0", 40), "1", key},
			"EVAL":     {"", "1", key},
			"INFO":     {"server"},
			"TIME":     {},
			"GETRANGE": {key, "0", "1"},
			"SET":      {key, "", "PX", "1"},
			"PSETEX":   {key, "1", ""},
			"SETRANGE": {key, "0", ""},
			"PEXPIRE":  {key, "1"},
		}[command]
		if args == nil {
			args = []any{key}
		}
		reply, err := client.ACLDryRun(ctx, user, append([]any{command}, args...)...).Result()
		if err != nil {
			return
		}
		if reply != "OK" {
			rights[command] = reply
		} else {
			rights[command] = ""
		}
	}
	n.Rights, n.RightsBy, n.RightsErr = rights, "ACL DRYRUN", ""
}
