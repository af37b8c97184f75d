package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/redisfacts"
	"github.com/routelimit/limit/lua"
	"github.com/routelimit/limit/stores/redisstore"
)

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
	charges := []core.Charge{{Policy: ownPolicy, Rule: ownRule, Key: ownKey, Quota: core.Quota{Limit: 1, Window: time.Second.Microseconds()}}}
	asks := []core.Ask{{Charges: charges}}
	err := store.Take(ctx, asks)
	for i := 1; redis.HasErrorPrefix(err, "MOVED"); i++ { // the slot is on another node
		if i > 500 {
			n.ScriptErr = "found no policy with a slot on this node"
			n.RightsErr = n.ScriptErr
			return
		}
		charges[0].Policy = fmt.Sprint(ownPolicy, " ", i)
		err = store.Take(ctx, asks)
	}
	if err != nil {
		n.ScriptErr = err.Error()
	} else {
		n.Script, n.ScriptErr = measure(func() error { return store.Take(ctx, asks) })
	}
	key := lua.Key(prefix, &charges[0])
	askWrite(ctx, client, key, n)
	askRights(ctx, client, key, n)
}

// askWrite asks what the user may do by running the commands of a decision.
func askWrite(ctx context.Context, client *redis.Client, key string, n *Node) {
	rights := redisfacts.Ask(ctx, client, key)
	n.Rights, n.RightsBy = rights.Of, "a script that writes nothing"
	switch {
	case n.InfoErr == "":
		n.Rights["INFO"] = ""
	case redisfacts.NoRight(n.InfoErr):
		n.Rights["INFO"] = n.InfoErr
	}
	n.Writable, n.WriteErr = rights.Writable, rights.WriteErr
	if rights.Err != nil {
		n.RightsErr = "EVAL: " + rights.Err.Error()
	}
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
	for _, command := range redisfacts.Needed {
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
