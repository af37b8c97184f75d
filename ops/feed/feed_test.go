package feed_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/race"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/ops/feed"
	"github.com/routelimit/limit/rules"
)

// An audience keeps what a subscriber receives.
type audience struct {
	mu     sync.Mutex
	all    []feed.Batch
	errors []error
}

// listen subscribes until the test or ctx ends.
func listen(t *testing.T, ctx context.Context, client redis.UniversalClient, prefix string) *audience {
	a := new(audience)
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for batch, err := range feed.Subscribe(ctx, client, prefix) {
			a.mu.Lock()
			if err != nil {
				a.errors = append(a.errors, err)
			} else {
				a.all = append(a.all, batch)
			}
			a.mu.Unlock()
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return a
}

func (a *audience) batches() []feed.Batch {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]feed.Batch(nil), a.all...)
}

func (a *audience) failures() []error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]error(nil), a.errors...)
}

// events returns the events of an instance.
func (a *audience) events(instance string) (events []feed.Event) {
	for _, batch := range a.batches() {
		if batch.Instance == instance {
			events = append(events, batch.Events...)
		}
	}
	return events
}

// await waits until an instance is there.
func (a *audience) await(t *testing.T, instance string) {
	t.Helper()
	redistest.Await(t, 10*time.Second, "the instance "+instance, func() bool {
		for _, batch := range a.batches() {
			if batch.Instance == instance {
				return true
			}
		}
		return false
	})
}

func newLimiter() *limit.Limiter {
	return limit.New(nil, &limit.Options{Caller: limit.Caller[*http.Request]{User: func(r *http.Request) string { return r.Header.Get("X-User") }}})
}

func publish(t *testing.T, client redis.UniversalClient, instance string, o feed.Options) *limit.Limiter {
	limiter := newLimiter()
	o.Instance = instance
	t.Cleanup(feed.Publish(limiter, client, &o))
	return limiter
}

func policy(t testing.TB, limiter *limit.Limiter, rules ...limit.Rule) *limit.Policy {
	p := must.Get(limiter.Policy(limit.Named("api", rules...)))(t)
	return p
}

func take(t testing.TB, p *limit.Policy, n int, user string) {
	for range n {
		must.Get(p.Take(context.Background(), limit.Request{Keys: map[string]string{"user": user}}))(t)
	}
}

// calls returns how often the server has run a command.
func calls(t *testing.T, client *redis.Client, command string) int {
	text := must.Get(client.Info(t.Context(), "commandstats").Result())(t)
	_, rest, ok := strings.Cut(text, "cmdstat_"+command+":calls=")
	n := 0
	if ok {
		must.Get(fmt.Sscanf(rest, "%d", &n))(t)
	}
	return n
}

// TestTwoInstances receives the decisions of two instances, as a subscriber and as JSON.
func TestTwoInstances(t *testing.T) {
	client := redistest.Launch(t).Client()
	one, two := publish(t, client, "web-1", feed.Options{}), publish(t, client, "web-2", feed.Options{})
	a := listen(t, t.Context(), client, "")
	raw := client.Subscribe(t.Context(), "limit:control:feed:1")
	defer raw.Close()
	a.await(t, "web-1")
	a.await(t, "web-2")

	h := one.Limit(limit.Rules(limit.PerUser(time.Hour, 1), limit.Global(time.Hour, 100)))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for range 2 {
		r := httptest.NewRequest("POST", "/login?token=secret", nil)
		r.Pattern = "POST /login"
		r.Header.Set("X-User", "alice")
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	take(t, policy(t, two, limit.PerUser(time.Minute, 5)), 1, "bob")
	redistest.Await(t, 5*time.Second, "the events", func() bool { return len(a.events("web-1")) == 2 && len(a.events("web-2")) == 1 })

	events := a.events("web-1")
	retry := events[1].RetryAfterMS
	assert.WithinDuration(t, time.Now(), events[0].At, time.Minute)
	assert.InDelta(t, time.Hour.Milliseconds(), retry, 60_000)
	assert.Equal(t, feed.Event{At: events[0].At, Policy: "POST /login", Method: "POST", Allowed: true, Outcome: "admitted", Mode: "exact"}, events[0])
	assert.Equal(t, feed.Event{At: events[1].At, Policy: "POST /login", Method: "POST", Outcome: "refused", Mode: "exact", RetryAfterMS: retry,
		Rules: []feed.Rule{{Name: "per-user-1h", Key: "alice", Limit: 1, WindowMS: time.Hour.Milliseconds(), RetryAfterMS: retry}}}, events[1])
	assert.Equal(t, "api", a.events("web-2")[0].Policy)
	assert.Empty(t, a.events("web-2")[0].Method)
	assert.Empty(t, a.failures())

	for {
		message := must.Get(raw.ReceiveMessage(t.Context()))(t)
		assert.NotContains(t, message.Payload, "secret")
		if strings.Contains(message.Payload, "alice") {
			assert.Regexp(t, `^\{"instance":"web-1","events":\[.*\{"at":"20\d\d-\d\d-\d\dT[\d:.]{8,12}Z","policy":"POST /login","method":"POST",`+
				`"allowed":false,"outcome":"refused","mode":"exact","retry_after_ms":\d+,"rules":\[\{"name":"per-user-1h","key":"alice","limit":1,`+
				`"window_ms":3600000,"remaining":0,"retry_after_ms":\d+\}\]\}\],"admitted_not_shown":0,"refused_not_shown":0\}$`, message.Payload)
			break
		}
	}
	ttl := client.PTTL(t.Context(), "limit:control:{limit}:feed:watched").Val()
	assert.Greater(t, ttl, 2*time.Second, "the key ends soon after the subscriber")
}

// TestJoinedKeys publishes a key of two values both as it is and as people read it, unless names stand for keys.
func TestJoinedKeys(t *testing.T) {
	client := redistest.Client(t)
	a := listen(t, t.Context(), client, "")
	for _, c := range []struct {
		instance string
		name     func(string) string
		want     []string
	}{
		{"plain", nil, []string{"11:203.0.113.95:alice|203.0.113.9, alice", "alice|"}},
		{"named", func(string) string { return "9:192.0.2.15:alice" }, []string{"9:192.0.2.15:alice|", "9:192.0.2.15:alice|"}},
	} {
		limiter := publish(t, client, c.instance, feed.Options{Name: c.name})
		a.await(t, c.instance)
		p := policy(t, limiter, limit.MustParse("1/1h per ip and user; 1/1h per user").Rules()...)
		for range 2 {
			must.Get(p.Take(t.Context(), limit.Request{Keys: map[string]string{"ip": "203.0.113.9", "user": "alice"}}))(t)
		}
		redistest.Await(t, 10*time.Second, "2 events", func() bool { return len(a.events(c.instance)) == 2 })
		var shown []string
		for _, r := range a.events(c.instance)[1].Rules {
			shown = append(shown, r.Key+"|"+r.Shown)
		}
		assert.Equal(t, c.want, shown, c.instance)
	}
}

// TestGivenBack publishes a return of an outer set after its admission.
func TestGivenBack(t *testing.T) {
	client := redistest.Client(t)
	a := listen(t, t.Context(), client, "")
	limiter := publish(t, client, "one", feed.Options{})
	a.await(t, "one")
	outer := policy(t, limiter, limit.Global(time.Hour, 10))
	h := outer.Handler(limiter.Limit(limit.Named("inner", limit.Global(time.Hour, 1)))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	for range 2 {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	}
	redistest.Await(t, 10*time.Second, "5 events", func() bool { return len(a.events("one")) == 5 })
	var outcomes []string
	for _, e := range a.events("one") {
		if e.Policy == "api" {
			outcomes = append(outcomes, fmt.Sprint(e.Outcome, " ", e.Allowed, " ", len(e.Rules)))
		}
	}
	assert.Equal(t, []string{"admitted true 0", "admitted true 0", "given back true 0"}, outcomes)
}

// TestDrops makes more decisions than are published, and finds each as an event or in the
// numbers of those that were left out.
func TestDrops(t *testing.T) {
	const users, each = 100, 100
	client := redistest.Launch(t).Client()
	limiter := publish(t, client, "web", feed.Options{Admitted: 50})
	a := listen(t, t.Context(), client, "")
	a.await(t, "web")
	p := policy(t, limiter, limit.PerUser(time.Hour, 10))
	began := time.Now()
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for user := g; user < users; user += 4 {
				take(t, p, each, fmt.Sprint(user))
			}
		})
	}
	wg.Wait()
	took := time.Since(began)
	var shown, left [2]int64
	redistest.Await(t, 10*time.Second, "all decisions", func() bool {
		shown, left = [2]int64{}, [2]int64{}
		for _, batch := range a.batches() {
			left[0] += batch.Refused
			left[1] += batch.Admitted
			for _, e := range batch.Events {
				if e.Allowed {
					shown[1]++
				} else {
					shown[0]++
				}
			}
		}
		return shown[0]+left[0] == users*(each-10) && shown[1]+left[1] == users*10
	})
	ticks := int64(took/(100*time.Millisecond)) + 3
	assert.LessOrEqual(t, shown[1], 5*ticks, "50 admitted requests a second")
	assert.LessOrEqual(t, shown[0], 100*ticks, "1,000 refused requests a second")
	assert.Positive(t, shown[1])
	assert.Greater(t, shown[0], shown[1])
}

// TestNobodyListens counts the commands of an instance without a subscriber, and after one
// has gone.
func TestNobodyListens(t *testing.T) {
	client := redistest.Launch(t).Client()
	limiter := publish(t, client, "web", feed.Options{})
	p := policy(t, limiter, limit.PerUser(time.Hour, 10))
	began := time.Now()
	request := limit.Request{Keys: map[string]string{"user": "alice"}}
	allocations := testing.AllocsPerRun(1000, func() { p.Take(context.Background(), request) })
	if !race.Enabled { // it takes records out of pools at random
		assert.Zero(t, allocations)
	}
	redistest.Await(t, 5*time.Second, "two looks", func() bool { return calls(t, client, "get") >= 2 })
	assert.LessOrEqual(t, calls(t, client, "get"), int(time.Since(began)/time.Second)+2)
	assert.Zero(t, calls(t, client, "publish"))

	ctx, cancel := context.WithCancel(t.Context())
	a := listen(t, ctx, client, "")
	a.await(t, "web")
	cancel()
	redistest.Await(t, 10*time.Second, "the end of the key", func() bool {
		return client.Exists(t.Context(), "limit:control:{limit}:feed:watched").Val() == 0
	})
	looks := calls(t, client, "get")
	redistest.Await(t, 5*time.Second, "two looks", func() bool { return calls(t, client, "get") >= looks+2 })
	sent := calls(t, client, "publish")
	take(t, p, 100, "bob")
	looks = calls(t, client, "get")
	redistest.Await(t, 5*time.Second, "two looks", func() bool { return calls(t, client, "get") >= looks+2 })
	assert.Equal(t, sent, calls(t, client, "publish"))
}

// stalls watches the machine, and returns a function that returns how long this process stood
// still at a time, at most, since it was last called.
func stalls(t *testing.T) func() time.Duration {
	var longest atomic.Int64
	end := make(chan struct{})
	t.Cleanup(func() { close(end) })
	go func() {
		last := time.Now()
		for ticker := time.Tick(time.Millisecond); ; {
			select {
			case <-ticker:
				longest.Store(max(longest.Load(), int64(time.Since(last))))
				last = time.Now()
			case <-end:
				return
			}
		}
	}()
	return func() time.Duration {
		time.Sleep(2 * time.Millisecond) // for a stall that has just ended to be seen
		return time.Duration(longest.Swap(0))
	}
}

// TestRedisKilled kills the server and starts it again.
func TestRedisKilled(t *testing.T) {
	server := redistest.Launch(t)
	client := server.Client()
	limiter := publish(t, client, "web", feed.Options{})
	a := listen(t, t.Context(), client, "")
	a.await(t, "web")
	p := policy(t, limiter, limit.PerUser(time.Hour, 10))
	longest := stalls(t)
	for _, kill := range []struct{ down, up func() }{
		{server.Kill, func() { server.Restart() }},
		{server.Pause, server.Resume},
	} {
		failures := len(a.failures())
		kill.down()
		redistest.Await(t, 15*time.Second, "an error", func() bool {
			began := time.Now()
			take(t, p, 20, "alice")
			took := time.Since(began)
			assert.Less(t, took, 100*time.Millisecond+2*longest(), "decisions go on")
			return len(a.failures()) > failures
		})
		kill.up()
		before := len(a.events("web"))
		redistest.Await(t, 30*time.Second, "events again", func() bool {
			take(t, p, 1, "alice")
			return len(a.events("web")) > before
		})
	}
	assert.LessOrEqual(t, len(a.failures()), 10)
}

// TestCluster publishes and subscribes at different nodes of a Cluster.
func TestCluster(t *testing.T) {
	nodes := redistest.StartCluster(t, 5*time.Second)
	client := redistest.Closing(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: nodes.Addrs()}))
	limiter := publish(t, client, "web", feed.Options{Prefix: "shop"})
	p := policy(t, limiter, limit.PerUser(time.Hour, 1))
	var all []*audience
	for range 3 {
		other := redistest.Closing(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: nodes.Addrs()}))
		all = append(all, listen(t, t.Context(), other, "shop"))
	}
	elsewhere := listen(t, t.Context(), client, "other")
	for _, a := range all {
		a.await(t, "web")
	}
	take(t, p, 20, "alice")
	for _, a := range all {
		redistest.Await(t, 5*time.Second, "all events", func() bool { return len(a.events("web")) == 20 })
	}
	assert.Empty(t, elsewhere.batches())
}

// TestGoroutines checks that stop and the end of a loop leave no goroutine, while Redis
// answers and while it does not.
func TestGoroutines(t *testing.T) {
	server := redistest.Launch(t)
	for _, paused := range []bool{false, true} {
		client := redis.NewClient(&redis.Options{Addr: server.Addr})
		require.NoError(t, client.Ping(t.Context()).Err())
		before := runtime.NumGoroutine()
		limiter := newLimiter()
		stop := feed.Publish(limiter, client, nil)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			for batch := range feed.Subscribe(ctx, client, "") {
				if batch.Instance != "" {
					if paused {
						server.Pause()
						cancel() // while Redis does not answer
					}
					break
				}
			}
		}()
		<-done
		cancel()
		stop()
		stop()
		redistest.Await(t, 10*time.Second, "the end of goroutines", func() bool { return runtime.NumGoroutine() <= before })
		client.Close()
	}
	server.Resume()
}

// TestRights runs both sides with the rights of docs/watching.md, and without.
func TestRights(t *testing.T) {
	server := redistest.Launch(t)
	admin := server.Client()
	user := func(name string, rights ...any) redis.UniversalClient {
		require.NoError(t, admin.Do(t.Context(), append([]any{"ACL", "SETUSER", name, "reset", "on", ">p", "+hello", "+auth", "+ping"}, rights...)...).Err())
		client := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: server.Addr, Username: name, Password: "p"}))
		return client
	}
	limiter := publish(t, user("program", "~limit:control:*", "&limit:control:*", "+get", "+publish"), "web", feed.Options{})
	a := listen(t, t.Context(), user("watcher", "~limit:control:*", "&limit:control:*", "+set", "+subscribe", "+unsubscribe"), "")
	a.await(t, "web")
	take(t, policy(t, limiter, limit.PerUser(time.Hour, 1)), 1, "alice")
	redistest.Await(t, 5*time.Second, "an event", func() bool { return len(a.events("web")) == 1 })
	assert.Empty(t, a.failures())

	for name, rights := range map[string][]any{
		"NOPERM.*SUBSCRIBE|NOPERM.*subscribe": {"~limit:control:*", "&limit:control:*", "+set"},
		"SET limit:control.*NOPERM":           {"&limit:control:*", "+set", "+subscribe"},
		"NOPERM.*channel":                     {"~limit:control:*", "+set", "+subscribe"},
	} {
		t.Run(name, func(t *testing.T) {
			a := listen(t, t.Context(), user("other", rights...), "")
			redistest.Await(t, 5*time.Second, "an error", func() bool { return len(a.failures()) > 0 })
			assert.Regexp(t, name, a.failures()[0].Error())
		})
	}
}

func TestNames(t *testing.T) {
	client := redistest.Launch(t).Client()
	limiter := publish(t, client, "web", feed.Options{Admitted: -1, Name: func(key string) string { return "hidden " + key[:1] }})
	a := listen(t, t.Context(), client, "")
	a.await(t, "web")
	shadow := limit.Rule{Name: "shadow", Key: limit.ByUser, Limit: 1, Window: time.Hour, Shadow: &rules.Shadow{}}
	take(t, policy(t, limiter, shadow, limit.PerUser(time.Hour, 2)), 3, "alice")
	var left int64
	redistest.Await(t, 5*time.Second, "the events", func() bool {
		left = 0
		for _, batch := range a.batches() {
			left += batch.Admitted
		}
		return len(a.events("web")) == 1 && left == 2
	})
	rules := a.events("web")[0].Rules
	require.Len(t, rules, 1)
	assert.Equal(t, "hidden a", rules[0].Key)
	assert.Equal(t, "per-user-1h", rules[0].Name)
}

// TestInvalidMessage sends a subscriber what is no batch.
func TestInvalidMessage(t *testing.T) {
	client := redistest.Launch(t).Client()
	publish(t, client, "web", feed.Options{})
	a := listen(t, t.Context(), client, "")
	a.await(t, "web")
	for range 100 {
		require.NoError(t, client.Publish(t.Context(), "limit:control:feed:1", `{"events": 5}`).Err())
	}
	redistest.Await(t, 5*time.Second, "an error", func() bool { return len(a.failures()) > 0 })
	assert.ErrorContains(t, a.failures()[0], "feed: an invalid message on channel limit:control:feed:1: json:")
	seen := len(a.batches())
	redistest.Await(t, 5*time.Second, "more batches", func() bool { return len(a.batches()) > seen })
	assert.Less(t, len(a.failures()), 10)
}

func TestMistakes(t *testing.T) {
	client := redistest.Closing(t, redis.NewClient(&redis.Options{}))
	limiter := newLimiter()
	for text, f := range map[string]func(){
		"feed: the limiter is nil: make it with limit.New":                                       func() { feed.Publish(nil, client, nil) },
		`feed: the client is nil: write redis.NewClient(&redis.Options{Addr: "localhost:6379"})`: func() { feed.Publish(limiter, (*redis.Client)(nil), nil) },
		`feed: Prefix "{a}": write one without braces`:                                           func() { feed.Publish(limiter, client, &feed.Options{Prefix: "{a}"}) },
		"feed: Admitted 1001: write at most 1000, 0 for 100, or -1 for none":                     func() { feed.Publish(limiter, client, &feed.Options{Admitted: 1001}) },
	} {
		assert.PanicsWithValue(t, text, f)
	}
	assert.Panics(t, func() { feed.Publish(limiter, client, &feed.Options{Instance: strings.Repeat("x", 65)}) })
	assert.Panics(t, func() { feed.Subscribe(t.Context(), nil, "") })
	assert.Panics(t, func() { feed.Subscribe(t.Context(), client, "{a}") })
}

// TestSilence checks that the feed logs nothing, whatever happens to Redis.
func TestSilence(t *testing.T) {
	var log bytes.Buffer
	usual := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(usual)
	server := redistest.Launch(t)
	client := server.Client()
	a := listen(t, t.Context(), client, "")
	limiter := newLimiter()
	defer feed.Publish(limiter, client, &feed.Options{Instance: "web"})()
	a.await(t, "web")
	server.Kill()
	redistest.Await(t, 10*time.Second, "an error", func() bool { return len(a.failures()) > 0 })
	assert.Empty(t, log.String())
}

// TestMessage checks the form of a batch as JSON of the type.
func TestMessage(t *testing.T) {
	var batch feed.Batch
	require.NoError(t, json.Unmarshal([]byte(`{"instance":"web","events":[],"admitted_not_shown":3,"refused_not_shown":4}`), &batch))
	assert.Equal(t, feed.Batch{Instance: "web", Events: []feed.Event{}, Admitted: 3, Refused: 4}, batch)
}
