package control

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit/internal/redisfacts"
)

// explain adds to an error about rights what the user may not do, and the command that
// grants it.
func (c *Control) explain(ctx context.Context, err error) error {
	if !redisfacts.NoRight(err.Error()) {
		return err
	}
	var user string
	switch client := c.client.(type) {
	case *redis.Client:
		user = client.Options().Username
	case *redis.ClusterClient:
		user = client.Options().Username
	}
	if user == "" {
		user = "default"
	}
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	what := "run all that package control needs"
	if refused := redisfacts.AskControl(ctx, c.client, c.prefix).Refused(); len(refused) > 0 {
		what = "run " + strings.Join(refused, ", ")
	}
	return fmt.Errorf("%w: user %q may not %s: %s", err, user, what, redisfacts.GrantControl(user, c.prefix))
}
