package doctor

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit/internal/redisfacts"
)

// isControl reports whether a key is one of package control: a ban, an override or a
// pushed policy. Doctor never proposes to delete those.
func isControl(prefix, name string) bool { return strings.HasPrefix(name, prefix+":control:{") }

// askControl asks what the user may do with bans, overrides and pushed policies, if there
// are any or asked is set.
func askControl(ctx context.Context, clients []*redis.Client, nodes []Node, prefix string, asked bool) (c Control) {
	var versions []string
	for _, kind := range []string{"bans", "overrides", "policy"} {
		versions = append(versions, redisfacts.ControlKey(prefix, kind, "version"))
	}
	for i, client := range clients {
		if nodes[i].Err != "" || nodes[i].replica() {
			continue
		}
		found, err := client.Exists(ctx, versions...).Result()
		if redis.HasErrorPrefix(err, "MOVED") {
			continue
		}
		if asked || found > 0 {
			rights := redisfacts.AskControl(ctx, client, prefix)
			return Control{Addr: nodes[i].Addr, User: nodes[i].User, Rights: &rights}
		}
		return Control{}
	}
	return Control{}
}
