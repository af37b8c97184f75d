package doctor

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/internal/faultproxy"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redisfacts"
	"github.com/routelimit/limit/internal/redistest"
)

func TestRedisRights(t *testing.T) {
	client := redistest.Real(t)
	user := func(t *testing.T, rules ...string) string {
		t.Helper()
		words := []any{"ACL", "SETUSER", "app", "reset", "on", ">secret", "~limit:*"}
		for _, r := range rules {
			words = append(words, r)
		}
		require.NoError(t, client.Do(t.Context(), words...).Err())
		return "redis://app:secret@" + addr(client)
	}
	commands := strings.Fields("+" + strings.ToLower(strings.Join(redisfacts.Needed, " +")))
	without := func(commands []string, command string) []string {
		return slices.DeleteFunc(slices.Clone(commands), func(c string) bool { return c == command })
	}

	t.Run("what a decision needs", func(t *testing.T) {
		found := see(t, RedisOptions{Address: location{URL: user(t, commands...)}})
		assert.Equal(t, OK, found["permissions"].Verdict, found["permissions"].Found)
		assert.NotContains(t, found["permissions"].Found, "not tried")
		assert.Contains(t, found["script-latency"].Found, "of 50 calls")
		for _, f := range found {
			// INFO shows persistence to be off, and a busy machine may be slow.
			if f.Check != "persistence" && !strings.HasSuffix(f.Check, "-latency") {
				assert.Contains(t, []Verdict{OK, Skipped}, f.Verdict, "%s: %s", f.Check, f.Found)
			}
		}
		for _, check := range []string{"idle-timeout", "keys-ttl"} {
			assert.Equal(t, Skipped, found[check].Verdict, check)
			assert.Contains(t, found[check].Found, "NOPERM", check)
		}
	})
	t.Run("what a decision needs, of every algorithm", func(t *testing.T) {
		options := must.Get(redis.ParseURL(user(t, commands...)))(t)
		client := redistest.Closing(t, redis.NewClient(options))
		spend(t, client)
	})
	t.Run("what a decision needs but INFO", func(t *testing.T) {
		found := see(t, RedisOptions{Address: location{URL: user(t, without(commands, "+info")...)}})
		assert.Equal(t, Warn, found["permissions"].Verdict, found["permissions"].Found)
		assert.Contains(t, found["permissions"].Found, "may not run INFO (")
		assert.Contains(t, strings.Join(found["permissions"].Fix, ""), " +info ")
		assert.Equal(t, OK, found["writable"].Verdict, found["writable"].Found)
		assert.Contains(t, found["script-latency"].Found, "of 50 calls")
		for _, check := range []string{"version", "role", "eviction", "memory", "persistence", "replicas", "connections",
			"idle-timeout", "keys-ttl"} {
			assert.Equal(t, Skipped, found[check].Verdict, check)
			assert.Contains(t, found[check].Found, "NOPERM", check)
		}
	})
	t.Run("GET and EVALSHA alone", func(t *testing.T) {
		found := see(t, RedisOptions{Address: location{URL: user(t, "+get", "+evalsha")}})
		assert.Equal(t, Skipped, found["writable"].Verdict, found["writable"].Found)
		assert.Equal(t, Fail, found["permissions"].Verdict, found["permissions"].Found)
	})
	t.Run("all but CONFIG", func(t *testing.T) {
		found := see(t, RedisOptions{Address: location{URL: user(t, "+@all", "-config")}})
		assert.Equal(t, OK, found["eviction"].Verdict, "INFO says it too")
		assert.Equal(t, Skipped, found["idle-timeout"].Verdict)
		assert.Equal(t, OK, found["permissions"].Verdict)
	})
	t.Run("all but GETRANGE", func(t *testing.T) {
		found := see(t, RedisOptions{Address: location{URL: user(t, "+@all", "-getrange")}})
		assert.Equal(t, Skipped, found["script-latency"].Verdict, "it decides nothing")
	})
	for _, asks := range []string{"+acl", "-acl"} { // with the name of the user, or without
		for _, without := range []string{"evalsha", "eval", "setrange", "set", "psetex", "mget"} {
			t.Run(asks+" -"+without, func(t *testing.T) {
				f := see(t, RedisOptions{Address: location{URL: user(t, "+@all", asks, "-"+without)}})["permissions"]
				assert.Equal(t, Fail, f.Verdict, f.Found)
				assert.Contains(t, f.Found, "may not run "+strings.ToUpper(without)+" (")
				assert.NotContains(t, strings.Join(f.Fix, "\n"), "secret")
			})
		}
	}
	for _, asks := range []string{"+acl", "-acl"} {
		t.Run(asks+" -info", func(t *testing.T) {
			f := see(t, RedisOptions{Address: location{URL: user(t, "+@all", asks, "-info")}})["permissions"]
			assert.Equal(t, Warn, f.Verdict, f.Found)
			assert.Contains(t, f.Found, "may not run INFO (")
		})
	}
	t.Run("another prefix", func(t *testing.T) {
		f := see(t, RedisOptions{Address: location{URL: user(t, "+@all")}, Prefix: "shop"})["permissions"]
		assert.Equal(t, Fail, f.Verdict, f.Found)
	})
	t.Run("wrong password", func(t *testing.T) {
		user(t, "+@all")
		f := see(t, RedisOptions{Address: location{URL: "redis://app:typo@" + addr(client)}})["connect"]
		assert.Equal(t, Fail, f.Verdict)
		assert.Contains(t, f.Found, "the user or the password is wrong")
		assert.NotContains(t, f.Found+strings.Join(f.Fix, ""), "typo")
	})
}

// TestSlowScript measures decisions that take longer than the default Timeout of a
// store.
func TestSlowScript(t *testing.T) {
	proxy := faultproxy.Start(t, addr(redistest.Real(t)))
	proxy.Break(func(c faultproxy.Command) faultproxy.Fault {
		if c.Name == "evalsha" && c.Number%20 == 0 {
			return faultproxy.Fault{Delay: 150 * time.Millisecond}
		}
		return faultproxy.Fault{}
	})
	f := see(t, RedisOptions{Address: location{URL: proxy.Addr()}})["script-latency"]
	assert.Contains(t, []Verdict{Warn, Fail}, f.Verdict, f.Found) // a busy machine may be slower still
}

// TestNeeded holds the lists of commands to the scripts.
func TestNeeded(t *testing.T) {
	byHolds := []string{"HGET", "HMGET", "HSCAN", "HSET", "HDEL", "ZADD", "ZREM", "ZRANGE", "ZRANGEBYSCORE"}
	for folder, c := range map[string]struct{ sent, listed []string }{
		"lua":         {[]string{"EVALSHA", "EVAL", "INFO"}, slices.Concat(redisfacts.Needed, byHolds)},
		"ops/control": {[]string{"EVALSHA", "EVAL", "HSCAN"}, redisfacts.NeededByControl},
	} {
		files := must.Get(filepath.Glob("../../../../" + folder + "/*.lua"))(t)
		require.NotEmpty(t, files)
		for _, file := range files {
			text := must.Get(os.ReadFile(file))(t)
			for _, m := range regexp.MustCompile(`call\('([A-Z]+)'`).FindAllStringSubmatch(string(text), -1) {
				if !slices.Contains(c.sent, m[1]) {
					c.sent = append(c.sent, m[1])
				}
			}
		}
		assert.ElementsMatch(t, c.sent, c.listed, folder)
	}
}
