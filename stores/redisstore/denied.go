package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/notice"
	"github.com/routelimit/limit/internal/redisfacts"
)

// hindered returns an error about a call that failed although the server works: it found
// no connection, or the user may not make it.
func (s *Store) hindered(ctx context.Context, keys []string, began int64, err error) error {
	switch {
	case errors.Is(err, errExhausted):
		_, client := s.knownServerOf(keys[0])
		return s.errBlocked(poolSize(client))
	case errors.Is(err, errNoTurn), errors.Is(err, context.DeadlineExceeded), errors.Is(err, redis.ErrPoolTimeout):
		return s.blocked(keys[0], began)
	case redisfacts.NoRight(err.Error()):
		return s.denied(ctx, keys, err)
	}
	return nil
}

// denied returns an error if the user may not decide on a rule, whatever its clients
// send. The request may then be admitted, so a client must not cause it: it is the
// client's key that is refused if the user may decide on another key of the rule.
func (s *Store) denied(ctx context.Context, keys []string, reply error) error {
	asked := make(map[string]bool)
	for _, key := range keys {
		_, rest, _ := strings.Cut(key, "}:")
		rule, _, _ := strings.Cut(rest, ":")
		stem := key[:len(key)-len(rest)] + rule + ":"
		if asked[stem] {
			continue
		}
		asked[stem] = true
		_, client, err := s.serverOf(ctx, key)
		if err != nil {
			return nil //nolint:nilerr // what is not known is not denied
		}
		var refused []string
		for _, own := range []string{"", "1", "a"} { // a pattern may allow digits alone, for example
			rights := redisfacts.Ask(ctx, client, stem+own+noClientKey)
			if refused = rights.Refused(); refused == nil {
				break
			}
		}
		if refused != nil {
			return &core.Diagnosis{Code: notice.NoPermission, Err: fmt.Errorf("redisstore: %w: %w: %w", core.ErrBlocked, reply, s.errNoRight(client, refused, stem))}
		}
	}
	return nil
}

// noClientKey ends keys that no client can choose: escaped keys have capital letters behind a %.
const noClientKey = "%check"

func (s *Store) errNoRight(client redis.UniversalClient, refused []string, keys string) error {
	user := userOf(client)
	return fmt.Errorf("user %q may not run %s on keys that begin with %q: %s",
		user, strings.Join(refused, ", "), keys, redisfacts.Grant(user, s.prefix))
}

// userOf returns the name by which Redis knows the user of a client.
func userOf(client redis.UniversalClient) string {
	if c, ok := client.(*redis.Client); ok && c.Options().Username != "" {
		return c.Options().Username
	}
	return "default"
}
