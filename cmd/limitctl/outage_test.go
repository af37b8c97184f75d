package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/faultproxy"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/operate"
	"github.com/routelimit/limit/ops/feed"
	"github.com/routelimit/limit/ops/livepage"
	"github.com/routelimit/limit/stores/redisstore"
)

// An instance is one of several on a Redis, with a live page.
type instance struct {
	limiter *limit.Limiter
	api     *limit.Policy
	page    http.Handler
}

func newInstance(t *testing.T, addr string, instances int) *instance {
	t.Helper()
	client := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, DialTimeout: time.Second}))
	i := &instance{limiter: limit.New(redisstore.New(client, nil), &limit.Options{Instances: instances, Log: quiet})}
	i.page = livepage.Handler(i.limiter, &livepage.Options{Authorize: func(*http.Request) (string, livepage.Role) { return "ann", livepage.Operator }})
	i.api = must.Get(i.limiter.Policy(limit.Named("api", limit.PerUser(time.Hour, 300))))(t)
	return i
}

func (i *instance) take(t *testing.T) limit.Decision {
	t.Helper()
	d := must.Get(i.api.Take(t.Context(), limit.Request{Keys: map[string]string{"user": "alice"}}))(t)
	return d
}

// look returns what the next request would meet.
func (i *instance) look(t *testing.T) limit.Decision {
	t.Helper()
	d := must.Get(i.api.Peek(t.Context(), limit.Request{Keys: map[string]string{"user": "alice"}}))(t)
	return d
}

// A peeked key is what the live page says about it.
type peeked struct {
	Remaining *int64
	Words     string
}

func (i *instance) peek(t *testing.T) (p peeked) {
	t.Helper()
	w := httptest.NewRecorder()
	query := url.Values{"policy": {"api"}, "rule": {"per-user-1h"}, "key": {"alice"}}
	i.page.ServeHTTP(w, httptest.NewRequest("GET", "/limits/peek?"+query.Encode(), nil))
	require.Equal(t, 200, w.Code, w.Body)
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p))
	return p
}

// left returns what the tools say is left to alice, and "" once they all agree: limitctl
// inspect, the live page of each instance, and a request to each.
func left(t *testing.T, inspect []string, instances []*instance) (n int64, differs string) {
	t.Helper()
	out, _ := exits(t, 0, inspect...)
	var found struct {
		States []struct{ Capacity, Used int64 }
	}
	require.NoError(t, json.Unmarshal([]byte(out), &found))
	n = 300
	if len(found.States) > 0 {
		n = found.States[0].Capacity - found.States[0].Used
	}
	for k, i := range instances {
		d := i.look(t)
		var request int64
		for rule := range d.Rules() {
			request = rule.Remaining
		}
		page, stats := i.peek(t), operate.ReadStats(i.limiter)
		switch {
		case stats.Unavailable || stats.Owed > 0:
			return n, fmt.Sprintf("instance %d: %+v", k, stats)
		case d.Mode != core.ModeExact || request != n || page.Remaining == nil || *page.Remaining != n:
			return n, fmt.Sprintf("instance %d: %d left by limitctl, %d for a request (%v), page %+v", k, n, request, d.Mode, page)
		}
	}
	return n, ""
}

// TestOneTruth has three instances on a Redis that fails, and comes back with or without its
// data. Meanwhile each tool says that it does not know. Afterwards limitctl, the live pages and
// requests agree within a second, also about a reset.
func TestOneTruth(t *testing.T) {
	for name, fault := range map[string][2]func(*redistest.Server){
		"paused":  {(*redistest.Server).Pause, (*redistest.Server).Resume},
		"emptied": {(*redistest.Server).Kill, func(s *redistest.Server) { s.Restart() }},
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Launch(t)
			var instances []*instance
			for range 3 {
				instances = append(instances, newInstance(t, server.Addr, 3))
			}
			flags := []string{"--redis", "redis://" + server.Addr, "--rules", "300/1h per user", "--on", "api"}
			inspect := append([]string{"inspect", "--key", "alice", "--json"}, flags...)
			reset := append([]string{"reset", "--key", "alice", "--yes"}, flags...)
			admitted := int64(0)
			for _, i := range instances {
				for range 10 {
					if i.take(t).Allowed {
						admitted++
					}
				}
			}
			n, differs := left(t, inspect, instances)
			require.Empty(t, differs)
			require.Equal(t, 300-admitted, n)

			fault[0](server)
			began := time.Now()
			for _, i := range instances {
				for owed := 0; owed < 20; {
					if d := i.take(t); d.Mode == core.ModeLocal && d.Allowed {
						owed, admitted = owed+1, admitted+1
					}
				}
				stats := operate.ReadStats(i.limiter)
				assert.True(t, stats.Unavailable)
				assert.EqualValues(t, 20, stats.Owed)
				assert.WithinRange(t, stats.Since, began.Add(-time.Second), time.Now())
				p := i.peek(t)
				assert.Nil(t, p.Remaining)
				assert.Equal(t, "The store is unavailable. Until it answers, this instance alone decides, and admits 70 more.", p.Words)
			}
			if name != "paused" { // limitctl would wait for a while
				_, said := exits(t, 1, inspect...)
				assert.Contains(t, said, "cannot be reached")
			}

			fault[1](server)
			redistest.Await(t, 10*time.Second, "the store decides for each instance", func() bool {
				return !slices.ContainsFunc(instances, func(i *instance) bool { return i.look(t).Mode != core.ModeExact })
			})
			answered := time.Now()
			redistest.Await(t, time.Second, "the tools agree", func() bool { n, differs = left(t, inspect, instances); return differs == "" })
			t.Logf("the tools agree after %v", time.Since(answered))
			assert.GreaterOrEqual(t, n, 300-admitted)
			assert.LessOrEqual(t, n, int64(240), "what was owed is paid")
			if name == "paused" {
				assert.Equal(t, 300-admitted, n)
			}

			for range 3 {
				for _, i := range instances {
					i.take(t)
				}
			}
			exits(t, 0, reset...)
			redistest.Await(t, time.Second, "the tools agree on a reset", func() bool { n, differs = left(t, inspect, instances); return differs == "" && n == 300 })
			for _, i := range instances {
				assert.True(t, i.take(t).Allowed)
			}
		})
	}
}

// TestSlowRedis checks that commands wait for a Redis whose replies take longer than those that
// programs wait for, and say so if it does not answer.
func TestSlowRedis(t *testing.T) {
	client := redistest.Real(t)
	proxy := faultproxy.Start(t, client.Options().Addr)
	url := []string{"--redis", "redis://" + proxy.Addr()}
	on := []string{"--rules", "9/1h per user", "--on", "login"}
	key := []string{"--policy", "login", "--rule", "per-user-1h", "--key", "alice"}
	command := func(words string, more ...[]string) []string {
		args := strings.Fields(words)
		for _, m := range more {
			args = append(args, m...)
		}
		return append(args, url...)
	}
	policy := "version: 1\npolicies:\n  login: {routes: [POST /login], rules: 9/1h per user}\n"
	exits(t, 0, command("ban user alice --for 1h --by ann --yes")...)
	exits(t, 0, command("override --limit 50 --for 1h --by ann --yes", key, on)...)
	exits(t, 0, command("push --yes --by ann "+file(t, policy))...)

	proxy.Break(faultproxy.On(faultproxy.Fault{Delay: 350 * time.Millisecond}, "get", "evalsha", "eval"))
	out, problem := exits(t, 0, command("ban --list")...)
	assert.Contains(t, out, "user alice", problem)
	out, problem = exits(t, 0, command("override --list")...)
	assert.Contains(t, out, "key alice: limit 50", problem)
	out, _ = exits(t, 0, command("explain --user alice "+file(t, policy)+" POST /login")...)
	assert.Contains(t, out, "50")
	_, problem = exits(t, 0, command("push --yes --by ann "+file(t, strings.Replace(policy, "login", "other", 1)))...)
	assert.Contains(t, problem, "LIMIT-207: lifts policy login")

	proxy.Break(faultproxy.On(faultproxy.Fault{Kind: faultproxy.LoseReply}, "hscan"))
	for _, args := range [][]string{command("ban --list"), command("override --list"), command("inspect", key, on), command("explain " + file(t, policy) + " POST /login")} {
		out, _ = exits(t, 1, args...)
		assert.Empty(t, out, args)
	}
	_, problem = exits(t, 0, command("push --yes --by ann "+file(t, policy))...)
	assert.Contains(t, problem, "not compared with the file pushed before")
}

// TestSentinels runs commands through Sentinels, first with the first of them down, then with
// all of them down.
func TestSentinels(t *testing.T) {
	sentinel := redistest.StartSentinel(t)
	client := redistest.Closing(t, redis.NewFailoverClient(&redis.FailoverOptions{MasterName: sentinel.Name, SentinelAddrs: sentinel.Addrs}))
	limiter := limit.New(redisstore.New(client, &redisstore.Options{Timeout: time.Minute}), nil)
	api := must.Get(limiter.Policy(limit.Named("api", limit.PerUser(time.Hour, 2))))(t)
	t.Cleanup(feed.Publish(limiter, client, nil))
	take := func() {
		must.Get(api.Take(t.Context(), limit.Request{Keys: map[string]string{"user": "alice"}}))(t)
	}
	take()
	stop := func(addr string) {
		one := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1}))
		require.NoError(t, one.Shutdown(t.Context()).Err())
		redistest.Await(t, 5*time.Second, "a Sentinel that has ended", func() bool { return one.Ping(t.Context()).Err() != nil })
	}
	at := []string{"--sentinel", sentinel.Name, "--redis", fmt.Sprintf("redis://%s?addr=%s&addr=%s", sentinel.Addrs[0], sentinel.Addrs[1], sentinel.Addrs[2])}
	rules := append([]string{"--rules", "2/1h per user", "--on", "api"}, at...)
	stop(sentinel.Addrs[0])

	_, out, _ := run(t, append([]string{"doctor"}, at...)...)
	assert.Regexp(t, `(?m)^ok +connect`, out)
	assert.NotContains(t, out, "no primary answers")
	out, _ = exits(t, 0, append([]string{"inspect", "--key", "alice"}, rules...)...)
	assert.Regexp(t, `(?m)^api +per-user-1h +1 +2 +50%`, out)
	exits(t, 0, append([]string{"override", "--policy", "api", "--rule", "per-user-1h", "--key", "alice", "--limit", "4", "--for", "1h", "--by", "ann", "--yes"}, rules...)...)
	out, _ = exits(t, 0, append([]string{"reset", "--key", "alice", "--yes"}, rules...)...)
	assert.Contains(t, out, "reset")
	seen, problems, end := watching(t, at...)
	redistest.Await(t, 10*time.Second, "a decision", func() bool { take(); return strings.Contains(seen.String(), "alice") })
	assert.Zero(t, end(), problems.String())

	stop(sentinel.Addrs[1])
	stop(sentinel.Addrs[2])
	code, out, _ := run(t, append([]string{"doctor"}, at...)...)
	assert.Equal(t, 2, code)
	assert.Regexp(t, `(?m)^fail +connect +no Sentinel can be reached: dial tcp `+sentinel.Addrs[0]+`: connect: connection refused, dial tcp `+sentinel.Addrs[1], out)
	for _, args := range [][]string{append([]string{"inspect", "--key", "alice"}, rules...), append([]string{"reset", "--key", "alice", "--yes"}, rules...), append([]string{"watch"}, at...)} {
		_, problem := exits(t, 1, args...)
		assert.Contains(t, problem, "no Sentinel can be reached: ", args)
		assert.NotContains(t, problem, "\n", args)
		for _, addr := range sentinel.Addrs {
			assert.Contains(t, problem, addr+": connect: connection refused", args)
		}
	}
}
