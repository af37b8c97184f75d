package doctor

import (
	"context"
	"errors"
	"fmt"
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
			n.Rights.Err = errors.New(n.ScriptErr)
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
	n.User, _ = client.Do(ctx, "ACL", "WHOAMI").Text() // which may be refused
	n.Rights = redisfacts.Ask(ctx, client, lua.Key(prefix, &charges[0]))
	if n.Rights.Of != nil && (n.InfoErr == "" || redisfacts.NoRight(n.InfoErr)) {
		n.Rights.Of["INFO"] = n.InfoErr
	}
}
