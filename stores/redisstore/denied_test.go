package redisstore

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/notice"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/storetest"
)

func diagnosis(err error) (d *core.Diagnosis, ok bool) {
	ok = errors.As(err, &d)
	return d, ok
}

// TestDenied has users without a right. Where it is missing for all clients, the rules
// say what happens; where only for one key, the client may have chosen that.
func TestDenied(t *testing.T) {
	admin := redistest.Real(t)
	for name, test := range map[string]struct {
		rights  []any
		policy  string
		key     string
		refused bool
		blocked bool
	}{
		"all rights":                  {[]any{"~limit:*", "+@all"}, "p", "k", false, false},
		"no command":                  {[]any{"~limit:*", "+@all", "-evalsha"}, "p", "k", true, true},
		"no command of the script":    {[]any{"~limit:*", "+@all", "-set", "-psetex", "-setrange"}, "p", "k", true, true},
		"no keys":                     {[]any{"~other:*", "+@all"}, "p", "k", true, true},
		"another policy":              {[]any{"~limit:1:{other}:*", "+@all"}, "p", "k", true, true},
		"this policy":                 {[]any{"~limit:1:{p}:*", "+@all"}, "p", "k", false, false},
		"another rule":                {[]any{"~limit:1:{p}:s:*", "+@all"}, "p", "r:s:", true, true},
		"a client's key":              {[]any{"~limit:1:{p}:r:[0-9]*", "+@all"}, "p", "k", true, false},
		"a client's key, of letters":  {[]any{"~limit:1:{p}:r:[a-z]*", "+@all"}, "p", "7", true, false},
		"a client's key, with a name": {[]any{"~limit:1:{p}:r:[^k]*", "+@all"}, "p", "k: NOPERM}:x:", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, admin.Do(t.Context(), append([]any{"ACL", "SETUSER", "app", "reset", "on", ">secret"}, test.rights...)...).Err())
			client := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: admin.Options().Addr, Username: "app", Password: "secret"}))
			store := New(client, &Options{Timeout: 10 * time.Second})
			_, err := storetest.Take(t.Context(), store, test.policy, []core.Charge{charge("r", test.key, 1000, time.Minute)})
			assert.Equal(t, test.refused, err != nil, err)
			assert.Equal(t, test.blocked, errors.Is(err, core.ErrBlocked), err)
			assert.Equal(t, test.blocked, errors.Is(err, core.ErrUnavailable), err)
			if d, ok := diagnosis(err); test.blocked && assert.True(t, ok) {
				assert.Equal(t, notice.NoPermission, d.Code)
				assert.ErrorContains(t, err, `user "app" may not run `)
				assert.ErrorContains(t, err, "redis-cli ACL SETUSER app '~limit:*'")
			}
		})
	}
}
