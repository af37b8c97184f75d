package control_test

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/internal/logbook"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/ops/control"
)

// aclLines returns the commands of docs/redis.md for a user.
func aclLines(t testing.TB, user string) (lines [][]any) {
	t.Helper()
	text := must.Get(os.ReadFile("../../docs/redis.md"))(t)
	for _, m := range regexp.MustCompile(`(?m)^> (ACL SETUSER `+user+` (?:.*\\\n)*.*)$`).FindAllStringSubmatch(string(text), -1) {
		var words []any
		for _, w := range strings.Fields(strings.ReplaceAll(m[1], "\\\n", " ")) {
			words = append(words, w)
		}
		lines = append(lines, words)
	}
	return lines
}

// as returns a client of a user who has the rights of docs/redis.md and then others.
func as(t testing.TB, admin *redis.Client, user string, others ...any) *redis.Client {
	t.Helper()
	require.NoError(t, admin.Do(t.Context(), "ACL", "SETUSER", user, "reset", "resetchannels").Err())
	for _, line := range append(aclLines(t, user), append([]any{"ACL", "SETUSER", user}, others...)) {
		require.NoError(t, admin.Do(t.Context(), line...).Err())
	}
	client := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: admin.Options().Addr, Username: user, Password: "password"}))
	return client
}

// use changes, deletes and follows documents, and has some restored. It returns the
// errors by what was done.
func use(t testing.TB, admin, client *redis.Client) (errs map[string]error, log string) {
	t.Helper()
	require.NoError(t, admin.FlushAll(t.Context()).Err())
	book := new(logbook.Book)
	c := control.New(client, &control.Options{Prefix: "shop", Log: book.Log()})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	errs = make(map[string]error)
	errs["put"] = c.Put(ctx, "bans", "a", []byte("1"), time.Hour, "ann")
	var known atomic.Pointer[map[string]control.Document]
	require.NoError(t, c.Watch(ctx, "bans", func(all map[string]control.Document) { all = maps.Clone(all); known.Store(&all) }))
	errs["put again"] = c.Put(ctx, "bans", "b", nil, 0, "ann")
	_, errs["delete"] = c.Delete(ctx, "bans", "b", "ann")
	_, errs["history"] = c.History(ctx, "bans")
	lines := func() string {
		log = strings.Join(append([]string{log}, book.Lines()...), "\n")
		return log
	}
	unread := func() bool { return strings.Contains(lines(), "documents cannot be read") }
	if failed(errs) == "" {
		redistest.Await(t, 3*time.Second, "the document", func() bool { all := known.Load(); return all != nil && len(*all) == 1 || unread() })
		require.NoError(t, admin.FlushAll(t.Context()).Err())
		redistest.Await(t, 3*time.Second, "the document restored", func() bool {
			return admin.HLen(t.Context(), "shop:control:{shop}:bans:documents").Val() == 1 || unread()
		})
	}
	return errs, lines()
}

func failed(errs map[string]error) string {
	for _, what := range slices.Sorted(maps.Keys(errs)) {
		if errs[what] != nil {
			return what + ": " + errs[what].Error()
		}
	}
	return ""
}

// TestRights uses package control with the rights that docs/redis.md names, and without
// each of them.
func TestRights(t *testing.T) {
	admin := redistest.Launch(t).Client()
	for _, user := range []string{"shop", "ops"} {
		errs, log := use(t, admin, as(t, admin, user))
		assert.Empty(t, failed(errs), user)
		assert.NotContains(t, log, "LIMIT-402", user)
	}
	const grant = "run all that package control needs: redis-cli ACL SETUSER shop '~shop:control:*' +evalsha +eval "
	lines := aclLines(t, "shop")
	require.Len(t, lines, 2)
	for _, right := range lines[1][3:] {
		right := right.(string)
		if right[0] != '+' {
			continue
		}
		t.Run("without "+right, func(t *testing.T) {
			errs, log := use(t, admin, as(t, admin, "shop", "-"+right[1:]))
			said := failed(errs) + log
			assert.Contains(t, said, grant)
		})
	}
	t.Run("the log of a program that only follows", func(t *testing.T) {
		errs, log := use(t, admin, as(t, admin, "shop", "-get"))
		assert.Contains(t, errs["put"].Error(), grant)
		assert.Contains(t, log, "level=WARN msg=\"control: documents cannot be read from Redis; the last known ones stay in force\" code=LIMIT-402 kind=bans")
		assert.Contains(t, log, grant)
	})
}

// TestWithoutRights has the errors of a user who may do nothing, and of a Cluster
// client.
func TestWithoutRights(t *testing.T) {
	admin := redistest.Launch(t).Client()
	require.NoError(t, admin.Do(t.Context(), "ACL", "SETUSER", "none", "on", ">password", "+ping").Err())
	client := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: admin.Options().Addr, Username: "none", Password: "password"}))
	c := control.New(client, &control.Options{Log: slog.New(slog.DiscardHandler)})
	_, err := c.History(t.Context(), "bans")
	require.ErrorContains(t, err, `control: history of bans: NOPERM`)
	assert.ErrorContains(t, err, `let user "none" run all that package control needs: redis-cli ACL SETUSER none '~limit:control:*'`)
}

// TestNote checks that the history has the note of each change.
func TestNote(t *testing.T) {
	c := control.New(redistest.Launch(t).Client(), nil)
	require.NoError(t, c.Put(t.Context(), "flags", "x", nil, 0, "ann", "sum \"1\""))
	require.NoError(t, c.Put(t.Context(), "flags", "x", nil, 0, "ann"))
	for _, note := range []string{strings.Repeat("n", 201), "a\nb", "\xff"} {
		assert.ErrorContains(t, c.Put(t.Context(), "flags", "x", nil, 0, "ann", note), "control: a note of ")
	}
	changes := must.Get(c.History(t.Context(), "flags"))(t)
	require.Len(t, changes, 2)
	assert.Equal(t, []string{"", "sum \"1\""}, []string{changes[0].Note, changes[1].Note})
}
