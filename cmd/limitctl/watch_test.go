package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/logbook"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/ops/feed"
)

// watching runs limitctl watch until stop, which returns its exit code.
func watching(t *testing.T, args ...string) (out, problems *logbook.Book, stop func() int) {
	out, problems = new(logbook.Book), new(logbook.Book)
	ctx, cancel := context.WithCancel(t.Context())
	code := make(chan int, 1)
	go func() {
		cmd := newCommand()
		cmd.SetArgs(append([]string{"watch"}, args...))
		cmd.SetOut(out)
		cmd.SetErr(problems)
		c, _ := exitCode(cmd.ExecuteContextC(ctx))
		code <- c
	}()
	t.Cleanup(cancel)
	return out, problems, func() int {
		cancel()
		return <-code
	}
}

// TestWatch watches two instances on a real server.
func TestWatch(t *testing.T) {
	server := redistest.Launch(t)
	client := server.Client()
	url := "redis://" + server.Addr
	policies := make(map[string]*limit.Policy)
	for _, instance := range []string{"api-1", "api-2"} {
		limiter := limit.New(nil, nil)
		t.Cleanup(feed.Publish(limiter, client, &feed.Options{Instance: instance}))
		for _, name := range []string{"login", "search"} {
			p := must.Get(limiter.Policy(limit.Named(name, limit.PerUser(time.Minute, 2))))(t)
			policies[instance+name] = p
		}
	}
	all, problems, stopAll := watching(t, "--redis", url)
	some, _, stopSome := watching(t, "--redis", url, "--refused", "--policy", "login")
	lines, _, stopJSON := watching(t, "--redis", url, "--json")
	take := func(instance, name, user string) {
		must.Get(policies[instance+name].Take(t.Context(), limit.Request{Keys: map[string]string{"user": user}}))(t)
	}
	redistest.Await(t, 10*time.Second, "decisions of both instances", func() bool {
		take("api-1", "login", "\x1b[2J\u009b2J\u202e\x7falice")
		take("api-2", "search", "bob")
		return strings.Contains(some.String(), "api-1") && strings.Contains(all.String(), "api-2") &&
			strings.Contains(lines.String(), "api-1") && strings.Contains(lines.String(), "api-2")
	})
	assert.Equal(t, []int{0, 0, 0}, []int{stopAll(), stopSome(), stopJSON()})
	assert.Empty(t, problems.String())

	assert.Regexp(t, `(?m)^\d\d:\d\d:\d\d\.\d{3} api-2  search  refused   per-user-1m bob  2 in 1m, again in ([\d.]+s|1m)$`, all.String())
	for _, text := range []string{all.String(), some.String(), lines.String()} {
		assert.NotRegexp(t, "[\x1b\u009b\u202e\x7f]", text, "no control characters")
	}
	for line := range strings.Lines(some.String()) {
		assert.Regexp(t, `^\S+ api-1  login  refused   per-user-1m "\\x1b\[2J\\u009b2J\\u202e\\x7falice"  2 in 1m, again in ([\d.]+s|1m)\n$`, line)
	}
	var event struct {
		Instance string
		feed.Event
	}
	require.NoError(t, json.Unmarshal([]byte(strings.SplitN(lines.String(), "\n", 2)[0]), &event))
	assert.Regexp(t, "^api-[12]$", event.Instance)
	assert.Regexp(t, "^login|search$", event.Policy)
	assert.WithinDuration(t, time.Now(), event.At, time.Minute)
}

// TestWatchNothing watches a server on which nothing publishes, and none.
func TestWatchNothing(t *testing.T) {
	server := redistest.Launch(t)
	out, problems, stop := watching(t, "--redis", "redis://"+server.Addr)
	redistest.Await(t, 10*time.Second, "an explanation", func() bool { return problems.String() != "" })
	assert.Equal(t, "nothing publishes decisions: add feed.Publish(limiter, client, nil) to the program, see docs/watching.md, or check --prefix\n", problems.String())
	assert.Equal(t, 0, stop())
	assert.Empty(t, out.String())

	server.Kill()
	_, problem := exits(t, 1, "watch", "--redis", "redis://"+server.Addr)
	assert.Contains(t, problem, "connection refused")
}

func TestWatchArguments(t *testing.T) {
	for _, args := range [][]string{{}, {"--redis", "http://:geheim@[x"}, {"--redis", "redis://127.0.0.1:1", "more"}, {"--redis", "://geheim", "--cluster"},
		{"--redis", "redis://127.0.0.1:1", "--prefix", "{a}"}, {"--redis", "redis://u:geheim@h:port"}} {
		out, problem := exits(t, 3, append([]string{"watch"}, args...)...)
		assert.Empty(t, out)
		assert.NotEmpty(t, problem)
		assert.NotContains(t, problem, "geheim")
	}
}

// TestWatchLoss checks what is printed when Redis fails, and when instances end.
func TestWatchLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out, problems logbook.Book
		w := watch{silence: 3 * time.Second, problems: &problems, explain: func(err error) error { return err }, to: &watchLines{to: &out, zone: time.UTC}}
		require.NoError(t, w.run(func(yield func(feed.Batch, error) bool) {
			batch := feed.Batch{Instance: "api"}
			for range 10 {
				require.True(t, yield(batch, nil))
				time.Sleep(time.Second)
			}
			assert.Empty(t, problems.String())
			require.True(t, yield(feed.Batch{}, errors.New("EOF\x1b")))
			time.Sleep(time.Minute)
			assert.Equal(t, "limitctl: EOF\\x1b\n", problems.String(), "which says why nothing comes")
			require.True(t, yield(batch, nil))
			time.Sleep(time.Minute)
			assert.Equal(t, 2, strings.Count(problems.String(), "\n"), "all instances have ended")
			assert.Contains(t, problems.String(), "nothing publishes decisions")
		}))
		assert.Empty(t, out.String())
	})
	w := watch{silence: time.Hour}
	assert.EqualError(t, w.run(func(yield func(feed.Batch, error) bool) { assert.False(t, yield(feed.Batch{}, errors.New("no"))) }), "no")
}

func TestWatchLines(t *testing.T) {
	var out strings.Builder
	l := &watchLines{to: &out, zone: time.UTC}
	at := time.Date(2026, 1, 2, 14, 3, 12, 120e6, time.UTC)
	minute := time.Minute.Milliseconds()
	for _, e := range []feed.Event{
		{Policy: "POST /login", Method: "POST", Outcome: "refused", Mode: "exact", RetryAfterMS: 11_400,
			Rules: []feed.Rule{{Name: "per-ip-1m", Key: "203.0.113.9", Limit: 5, WindowMS: minute, RetryAfterMS: 11_400}}},
		{Policy: "GET /", Method: "GET", Allowed: true, Outcome: "admitted", Mode: "exact"},
		{Policy: "application", Method: "GET", Outcome: "degraded", Mode: "local", RetryAfterMS: 250, Rules: []feed.Rule{
			{Name: "global-1h", Limit: 100_000, WindowMS: 60 * minute, Remaining: 1500, RetryAfterMS: 250},
			{Name: "per-header-x", Key: "a b", Limit: 5, WindowMS: 90 * minute, RetryAfterMS: -1}}},
		{Policy: "GET /", Method: "GET", Outcome: "refused", Mode: "exact", Rules: []feed.Rule{
			{Name: "both", Key: "11:203.0.113.91:7", Shown: "203.0.113.9, 7", Limit: 5, WindowMS: minute}}},
		{Policy: "application", Outcome: "refused", Mode: "barred", RetryAfterMS: 25 * 60 * minute},
		{Policy: "application", Outcome: "refused", Mode: "barred", RetryAfterMS: -1},
		{Policy: "application", Method: "GET", Allowed: true, Outcome: "given back", Mode: "exact"},
		{Policy: "\x1b]0;\u202e", Outcome: "admitted", Allowed: true, Mode: "exempt"},
	} {
		e.At = at
		require.NoError(t, l.event("api-2", &e))
	}
	require.NoError(t, l.missed("api-10", at, 1234, 5))
	assert.Equal(t, `14:03:12.120 api-2  POST /login  refused   per-ip-1m 203.0.113.9  5 in 1m, again in 11.4s
14:03:12.120 api-2  GET /        admitted
14:03:12.120 api-2  application (GET)  degraded  global-1h  100,000 in 1h, 1,500 left, again in 250ms; per-header-x "a b"  5 in 1h30m, no wait helps; mode local
14:03:12.120 api-2  GET /              refused   both "203.0.113.9, 7"  5 in 1m
14:03:12.120 api-2  application        refused   again in 25h; mode barred
14:03:12.120 api-2  application        refused   no wait helps; mode barred
14:03:12.120 api-2  application (GET)  given back
14:03:12.120 api-2  \x1b]0;\u202e      admitted  mode exempt
14:03:12.120 api-10  5 refused and 1,234 admitted not shown, of all policies
`, out.String())
}

// TestWatchOmissions prints what was left out once a second for each instance.
func TestWatchOmissions(t *testing.T) {
	var out strings.Builder
	for _, refused := range []bool{false, true} {
		out.Reset()
		w := watch{refused: refused, to: &watchLines{to: &out, zone: time.UTC}}
		left := make(omissions)
		now := time.Unix(0, 0)
		for i := range 35 {
			for _, instance := range []string{"a", "b"} {
				batch := feed.Batch{Instance: instance, Admitted: 10, Refused: 1}
				if i >= 25 {
					batch.Admitted, batch.Refused = 0, 0
				}
				require.NoError(t, w.print(&batch, left, now))
			}
			now = now.Add(100 * time.Millisecond)
		}
		want := "00:00:00.000 a  1 refused and 10 admitted not shown, of all policies\n"
		last := "00:00:02.700 b  6 refused and 60 admitted not shown, of all policies\n"
		if refused {
			want = "00:00:00.000 a  1 refused not shown, of all policies\n"
			last = "00:00:02.700 b  6 refused not shown, of all policies\n"
		}
		assert.True(t, strings.HasPrefix(out.String(), want), out.String())
		assert.True(t, strings.HasSuffix(out.String(), last), out.String())
		assert.Equal(t, 8, strings.Count(out.String(), "\n"), out.String())
	}
	left := make(omissions)
	for i := range 30_000 {
		left.add(&feed.Batch{Instance: fmt.Sprint(i), Refused: 1}, time.Now())
	}
	assert.LessOrEqual(t, len(left), 10_000)
}

// TestWatchTableCounts counts a request that was given back once, and says how many keys it left
// out.
func TestWatchTableCounts(t *testing.T) {
	var out strings.Builder
	w := watch{subject: subject{key: "1"}, to: &watchTable{to: &out, zone: time.UTC, every: time.Second, sort: "refused", of: subject{key: "1"}}}
	two := feed.Event{Policy: "p", Outcome: "refused", Rules: []feed.Rule{{Name: "a", Key: "1"}, {Name: "b", Key: "2"}}}
	batch := feed.Batch{Instance: "api", Events: []feed.Event{two, {Policy: "q", Allowed: true, Outcome: "admitted"}, {Policy: "q", Allowed: true, Outcome: "given back"}}}
	require.NoError(t, w.print(&batch, make(omissions), time.Unix(0, 0)))
	require.NoError(t, w.print(&feed.Batch{}, make(omissions), time.Unix(1, 0)))
	assert.Equal(t, "00:00:01  in 1s: 1 refused and 0 admitted\nREFUSED  POLICY  RULE  KEY\n1        p       a     1\n\n", out.String())
	out.Reset()
	w = watch{to: &watchTable{to: &out, zone: time.UTC, every: time.Second, sort: "key"}}
	batch.Events = batch.Events[1:]
	for i := range tableCounts + 3 {
		batch.Events = append(batch.Events, feed.Event{Policy: "p", Rules: []feed.Rule{{Name: "a", Key: fmt.Sprint(i)}}})
	}
	require.NoError(t, w.print(&batch, make(omissions), time.Unix(0, 0)))
	require.NoError(t, w.print(&feed.Batch{}, make(omissions), time.Unix(1, 0)))
	assert.Contains(t, out.String(), "in 1s: 10,003 refused and 1 admitted\n")
	assert.Contains(t, out.String(), "and 9,980 more keys\nand 3 refusals of keys beyond these\n")
}

// TestWatchKey names keys by what operators know of a client, as no rules say what keys it has.
func TestWatchKey(t *testing.T) {
	for _, c := range []struct {
		named, key string
		want       bool
	}{
		{"2001:db8:1:2::5", "2001:db8:1:2::/64", true}, {"2001:db8:1:2::5", "2001:db8:1::/48", true}, {"2001:db8:1:2::5", "2001:db8:1:3::/64", false},
		{"2001:db8:1:2::5", "1=2001:db8:1:2::/64", true}, {"2001:db8:1:2::/64", "2001:db8:1:2::/64", true},
		{"203.0.113.9", "203.0.113.9", true}, {"::ffff:203.0.113.9", "203.0.113.9", true}, {"64:ff9b::203.0.113.9", "1=203.0.113.9", true}, {"203.0.113.9", "203.0.113.90", false},
		{"alice", "alice", true}, {"alice", "0=alice", true}, {"0=alice", "0=alice", true}, {"alice", "x=alice", false}, {"alice", "", false}, {"", "alice", true},
		{"2001:db8:1:2::5", "::/0", false},
	} {
		w := watch{subject: subject{key: c.named}}
		assert.Equal(t, c.want, w.wants(&feed.Event{Policy: "login", Rules: []feed.Rule{{Name: "r", Key: c.key}}}), c)
	}
}

// TestWatchJoinedKey names a key of two values as people read it, and counts it so.
func TestWatchJoinedKey(t *testing.T) {
	event := feed.Event{Policy: "p", Outcome: "refused", Rules: []feed.Rule{{Name: "both", Key: "11:203.0.113.91:7", Shown: "203.0.113.9, 7"}}}
	for key, want := range map[string]bool{"203.0.113.9, 7": true, "11:203.0.113.91:7": true, "203.0.113.9": false} {
		var out strings.Builder
		of := subject{key: key}
		table := &watchTable{to: &out, zone: time.UTC, every: time.Second, sort: "key", of: of}
		w := watch{subject: of, to: table}
		assert.Equal(t, want, w.wants(&event), key)
		require.NoError(t, table.event("api", &event))
		require.NoError(t, table.tick(time.Unix(0, 0)))
		require.NoError(t, table.tick(time.Unix(1, 0)))
		assert.Equal(t, want, strings.Contains(out.String(), "1        p       both  \"203.0.113.9, 7\"\n"), out.String())
	}
}

// TestWatchTable sorts and filters what instances publish, once in a while.
func TestWatchTable(t *testing.T) {
	refused := func(policy, rule, key string) feed.Event {
		return feed.Event{Policy: policy, Outcome: "refused", Rules: []feed.Rule{{Name: rule, Key: key}}}
	}
	batch := feed.Batch{Instance: "api", Refused: 7, Admitted: 1000, Events: []feed.Event{
		refused("search", "per-user-1m", "bob"), refused("login", "per-ip-1m", "b"), refused("login", "per-ip-1m", "a"), refused("login", "per-ip-1m", "b"),
		{Policy: "login", Allowed: true, Outcome: "admitted"}, {Policy: "login", Outcome: "refused", Mode: "barred"},
	}}
	const head = "00:00:05  in 5s: 10 refused and 2 admitted; 7 and 1,000 not counted, of all policies\nREFUSED  POLICY  RULE         KEY\n"
	for _, c := range []struct {
		of   subject
		sort string
		want string
	}{
		{sort: "refused", want: head + "4        login   per-ip-1m    b\n2        login   -            -\n2        login   per-ip-1m    a\n2        search  per-user-1m  bob\n\n"},
		{sort: "key", want: head + "2        login   -            -\n2        login   per-ip-1m    a\n4        login   per-ip-1m    b\n2        search  per-user-1m  bob\n\n"},
		{subject{rule: "per-ip-1m", key: "a"}, "policy", "00:00:05  in 5s: 2 refused and 0 admitted; 7 and 1,000 not counted, of all policies\nREFUSED  POLICY  RULE       KEY\n2        login   per-ip-1m  a\n\n"},
		{subject{policy: "other"}, "rule", "00:00:05  in 5s: 0 refused and 0 admitted; 7 and 1,000 not counted, of all policies\n\n"},
	} {
		var out strings.Builder
		w := watch{subject: c.of, to: &watchTable{to: &out, zone: time.UTC, every: 5 * time.Second, sort: c.sort, of: c.of}}
		left := make(omissions)
		require.NoError(t, w.print(&batch, left, time.Unix(0, 0)))
		batch := batch
		batch.Refused, batch.Admitted = 0, 0
		require.NoError(t, w.print(&batch, left, time.Unix(5, 0)))
		assert.Equal(t, c.want, out.String())
	}
	for _, args := range []string{"--sort size", "--sort key --json", "--sort key --every 0"} {
		_, problem := exits(t, 3, append([]string{"watch", "--redis", "redis://127.0.0.1:1"}, strings.Fields(args)...)...)
		assert.Contains(t, problem, ": write ")
	}
}
