package live

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/guard"
	"github.com/routelimit/limit/stores/redisstore"
)

// everyAlgorithm has a rule of each algorithm, which "alice" uses up. Each is a policy,
// since rules are decided together.
var everyAlgorithm = []string{"log: 3/1h per user", "fixed: 3/1h per user fixed-window", "cells: 3/1h per user sliding-cells", "counter: 3/1h per user sliding-counter",
	"bucket: 3/1h per user token-bucket", "leaky: 3/1h per user leaky-bucket burst 3", "queue: 3/1h per user queue burst 2", "flight: 3/1h per user concurrency",
	"values: 3/1h per user distinct query v", "day: 3/day per user zone UTC"}

// open uses a client of its own, since it may no longer be used to write state.
func open(t *testing.T, client redis.UniversalClient, o Options, policies ...Policy) *Limits {
	t.Helper()
	switch c := client.(type) {
	case *redis.Client:
		client = redis.NewClient(c.Options())
	case *redis.ClusterClient:
		client = redis.NewClusterClient(c.Options())
	}
	t.Cleanup(func() { client.Close() })
	if o.Prefix == "" {
		o.Prefix = "limit"
	}
	l := must.Get(New(client, policies, o))(t)
	return l
}

func rulesOf(text string) limit.RuleSet { return limit.MustParse(text) }

// use takes units of a named policy as a program does.
func use(t *testing.T, client redis.UniversalClient, o *redisstore.Options, name, rules string, times int, r limit.Request) {
	t.Helper()
	patient := redisstore.Options{}
	if o != nil {
		patient = *o
	}
	patient.Timeout = time.Minute // beside other tests, Redis may be slow
	limiter := limit.New(guard.New(redisstore.New(client, &patient), &guard.Options{Slow: time.Minute}), nil)
	policy := must.Get(limiter.Policy(limit.Named(name, limit.MustParse(rules).Rules()...)))(t)
	for i := range times {
		if _, ok := r.Keys["query v"]; ok {
			r.Keys["query v"] = fmt.Sprint(i)
		}
		must.Get(policy.Take(t.Context(), r))(t)
	}
}

func keysOf(a *Answer) (keys []string) {
	for _, s := range a.Keys {
		keys = append(keys, s.Policy+" "+s.Rule+" "+s.Key)
	}
	return keys
}

func ask(t *testing.T, l *Limits, client redis.UniversalClient, q Question) *Answer {
	t.Helper()
	if q.N == 0 {
		q.N = 100
	}
	if q.Scan == 0 {
		q.Scan = 100_000
	}
	q.Pace = 1_000_000
	a := must.Get(l.Top(t.Context(), client, q))(t)
	return a
}

// TestEveryAlgorithm looks at keys of each algorithm on one server and in a Cluster,
// without and with hashed names and parts, resets them, and writes nothing before.
func TestEveryAlgorithm(t *testing.T) {
	secret := []byte("0123456789abcdef")
	cluster := redistest.Cluster(t)
	for name, c := range map[string]struct {
		client  redis.UniversalClient
		options redisstore.Options
	}{
		"plain":                   {redistest.Real(t), redisstore.Options{}},
		"prefix":                  {redistest.Real(t), redisstore.Options{Prefix: "shop[*"}},
		"secret":                  {redistest.Real(t), redisstore.Options{Secret: secret}},
		"spread":                  {redistest.Real(t), redisstore.Options{Spread: 3}},
		"cluster":                 {cluster, redisstore.Options{Prefix: "c"}},
		"cluster, spread, secret": {cluster, redisstore.Options{Prefix: "d", Spread: 3, Secret: secret}},
	} {
		t.Run(name, func(t *testing.T) {
			c.options.Timeout = 5 * time.Second
			var policies []Policy
			for i, text := range everyAlgorithm {
				policies = append(policies, Policy{Name: fmt.Sprint("p", len(everyAlgorithm)-i), Rules: rulesOf(text)}) // not as in Limits
				use(t, c.client, &c.options, policies[i].Name, text, 4, limit.Request{Keys: map[string]string{"user": "alice", "query v": ""}})
				use(t, c.client, &c.options, policies[i].Name, text, 1, limit.Request{Keys: map[string]string{"user": "bob", "query v": ""}})
			}
			o := Options{Prefix: c.options.Prefix, Spread: c.options.Spread, Secret: c.options.Secret}
			l := open(t, c.client, o, policies...)
			before := dump(t, c.client)
			for _, r := range l.Rules() {
				s := must.Get(l.state(t.Context(), r, "alice", ""))(t)
				assert.True(t, s.Refused, r.Name)
				assert.Equal(t, []any{int64(3), int64(3), 100.0}, []any{s.Used, s.Capacity, s.Percent}, r.Name)
				assert.True(t, s.Any())
				if r.Name != "flight" {
					require.NotZero(t, s.Until, r.Name)
					assert.True(t, s.Until.After(time.Now()), r.Name)
				}
				s = must.Get(l.state(t.Context(), r, "bob", ""))(t)
				assert.Equal(t, []any{int64(1), false}, []any{s.Used, s.Refused}, r.Name)
				s = must.Get(l.state(t.Context(), r, "nobody", ""))(t)
				assert.False(t, s.Any(), r.Name)
			}
			if c.options.Secret == nil || c.options.Spread == 0 {
				o.Secret = nil // names are hashed already
				a := ask(t, open(t, c.client, o, policies...), c.client, Question{At: 80})
				assert.Equal(t, []any{len(l.Rules()) * 2, len(l.Rules()), false}, []any{a.Known, a.Near, a.Partial}, keysOf(a))
				assert.Empty(t, a.Unknown)
			}
			assert.Equal(t, before, dump(t, c.client), "it writes nothing")
			for _, r := range l.Rules() {
				if !r.Resettable() {
					assert.Equal(t, "flight", r.Name)
					continue
				}
				require.NoError(t, l.Reset(t.Context(), r, "alice"))
				s := must.Get(l.state(t.Context(), r, "alice", ""))(t)
				assert.False(t, s.Any(), r.Name)
			}
		})
	}
}

// dump returns the value of each key.
func dump(t *testing.T, client redis.UniversalClient) map[string]string {
	t.Helper()
	values := make(map[string]string)
	read := func(ctx context.Context, node *redis.Client) error {
		names, err := node.Keys(ctx, "*").Result()
		for _, name := range names {
			if _, ok := client.(*redis.ClusterClient); ok && strings.Contains(name, ":token:") {
				continue // the nodes of this client are older than the look
			}
			value, err := node.Dump(ctx, name).Result()
			if err != nil {
				return err
			}
			values[name] = value + node.PExpireTime(ctx, name).String()
		}
		return err
	}
	if cluster, ok := client.(*redis.ClusterClient); ok {
		nodes := make(chan *redis.Client, 10)
		require.NoError(t, cluster.ForEachMaster(t.Context(), func(_ context.Context, node *redis.Client) error { nodes <- node; return nil }))
		close(nodes)
		for node := range nodes {
			require.NoError(t, read(t.Context(), node))
		}
		return values
	}
	require.NoError(t, read(t.Context(), client.(*redis.Client)))
	return values
}

// TestTopCounts checks the bounds, the order, and what belongs to no rule.
func TestTopCounts(t *testing.T) {
	client := redistest.Real(t)
	for i := range 40 {
		use(t, client, nil, "a", "r: 10/1h per user", 1+i%10, limit.Request{Keys: map[string]string{"user": fmt.Sprintf("u%02d", i)}})
	}
	use(t, client, nil, "b", "s: 1/1h per user", 1, limit.Request{Keys: map[string]string{"user": "x"}})
	use(t, client, nil, "a", "t: 1/2h global", 2, limit.Request{})
	require.NoError(t, client.Set(t.Context(), "limit:0:{a}:r:old", "x", 0).Err())
	require.NoError(t, client.Set(t.Context(), "limitless", "x", 0).Err())
	require.NoError(t, client.Set(t.Context(), "limit:1:{a:7}:r:u", "x", 0).Err())
	l := open(t, client, Options{}, Policy{Name: "a", Rules: rulesOf("r: 10/1h per user; t: 1/2h global")})

	a := ask(t, l, client, Question{At: 90, N: 5})
	assert.Equal(t, Answer{At: a.At, Took: a.Took, Looked: 44, Known: 41, Near: 9, Unknown: []Count{{"b", "s", 1}}, InParts: 1, Other: 1, Keys: a.Keys}, *a)
	assert.Equal(t, []string{"a t ", "a r u39", "a r u29", "a r u19", "a r u09"}, keysOf(ask(t, l, client, Question{At: 100, N: 5})), "those that are refused for longest first")
	assert.Equal(t, []string{"a r u08", "a r u18"}, keysOf(ask(t, l, client, Question{At: 90, N: 7}))[5:])
	assert.Equal(t, 41, ask(t, l, client, Question{At: 0, N: 1}).Near)
	a = ask(t, l, client, Question{Scan: 10})
	assert.InDelta(t, 9.5, a.Looked, 0.5, "one of the ten may be the token")
	assert.True(t, a.Partial)
	a = ask(t, open(t, client, Options{}), client, Question{})
	assert.Equal(t, []Count{{"a", "r", 40}, {"a", "t", 1}, {"b", "s", 1}}, a.Unknown)
	a = ask(t, open(t, client, Options{Spread: 3}, Policy{Name: "a", Rules: rulesOf("r: 10/1h per user")}), client, Question{})
	assert.Equal(t, []any{1, 42}, []any{a.Known, a.InParts})

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := l.Top(ctx, client, Question{N: 1, Scan: 1, Pace: 1})
	assert.Error(t, err)
	client.Close()
	_, err = l.Top(t.Context(), client, Question{N: 1, Scan: 1, Pace: 1})
	assert.Error(t, err)
}

// TestRoutes checks policies with the names of routes.
func TestRoutes(t *testing.T) {
	client := redistest.Real(t)
	for _, stored := range []string{"POST /update", "each GET /items/{id}"} {
		must.Get(core.Take(t.Context(), redisstore.New(client, &redisstore.Options{Timeout: time.Minute}), chargesOf(stored, "5/1h per ip", "2001:db8:1:2::/64")))(t)
	}
	var mu sync.Mutex
	asked := make(map[string]int)
	l := open(t, client, Options{Override: func(policy, rule, key string) int64 {
		mu.Lock()
		defer mu.Unlock()
		asked[policy+" "+rule+" "+key]++
		return 7
	}}, Policy{Name: "POST /update", Rules: rulesOf("5/1h per ip")}, Policy{Name: "GET /items/{id}", Each: true, Rules: rulesOf("5/1h per ip")})
	a := ask(t, l, client, Question{At: 1})
	assert.ElementsMatch(t, []string{"POST /update per-ip-1h 2001:db8:1:2::/64", "GET /items/{id} per-ip-1h 2001:db8:1:2::/64"}, keysOf(a))
	for _, s := range a.Keys {
		assert.Equal(t, []any{int64(7), int64(1), true}, []any{s.Limit, s.Used, s.Override})
	}
	assert.Len(t, asked, 2)
	_, err := New(client, []Policy{{Name: "a", Rules: rulesOf("5/1h per ip")}, {Name: "a", Rules: rulesOf("5/1h per ip")}}, Options{})
	assert.ErrorContains(t, err, `policy "a" is there twice`)
	for _, o := range []Options{{Secret: []byte("x")}, {IPv6Prefix: 3}, {Spread: -1}} {
		_, err = New(client, nil, o)
		assert.Error(t, err)
	}
}

// TestPlans checks states of plans: of one key in Redis, and of one for each plan.
func TestPlans(t *testing.T) {
	client := redistest.Real(t)
	var policies []Policy
	for name, text := range map[string]string{"w": "r: 2/1h per user plan pro 5 plan max 9", "b": "r: 2/1h per user token-bucket plan pro 5"} {
		for plan, times := range map[string]int{"": 1, "pro": 4, "max": 20} {
			use(t, client, nil, name, text, times, limit.Request{Keys: map[string]string{"user": "u" + plan}, Plan: plan})
		}
		policies = append(policies, Policy{Name: name, Rules: rulesOf(text)})
	}
	for user, plan := range map[string]string{"full": "", "full of pro": "pro"} {
		use(t, client, nil, "w", "r: 2/1h per user plan pro 5 plan max 9", 8, limit.Request{Keys: map[string]string{"user": user}, Plan: plan})
	}
	l := open(t, client, Options{}, policies...)
	got := make(map[string]string)
	for _, s := range ask(t, l, client, Question{}).Keys {
		got[s.Policy+" "+s.Key] = fmt.Sprint(s.Plan, " ", s.Used, "/", s.Limit)
	}
	assert.Equal(t, map[string]string{"w full": " 2/2", "w full of pro": "pro 5/5", "w u": " 1/2", "w upro": "pro 4/5", "w umax": "max 9/9", "b u": " 1/2", "b upro": "pro 4/5", "b umax": " 2/2"}, got)
	buckets := must.Get(l.Matching("b", "r"))(t)
	states := must.Get(l.States(t.Context(), buckets[0], "upro"))(t)
	require.Len(t, states, 2)
	assert.Equal(t, []any{"", int64(0), "pro", int64(4)}, []any{states[0].Plan, states[0].Used, states[1].Plan, states[1].Used})
	require.NoError(t, l.Reset(t.Context(), buckets[0], "upro"))
	states = must.Get(l.States(t.Context(), buckets[0], "upro"))(t)
	assert.Len(t, states, 1)
}

// TestBan checks a bar, which is no use of the limit.
func TestBan(t *testing.T) {
	client := redistest.Real(t)
	const text = "rate: 1/1h per ip; ban: 2/1h per ip ban 15m"
	use(t, client, nil, "p", text, 5, limit.Request{Keys: map[string]string{"ip": "192.0.2.1"}})
	l := open(t, client, Options{}, Policy{Name: "p", Rules: rulesOf(text)})
	assert.Equal(t, []string{"p rate 192.0.2.1", "p ban 192.0.2.1"}, keysOf(ask(t, l, client, Question{At: 80})))
	s := must.Get(l.state(t.Context(), l.Rules()[1], "192.0.2.1", ""))(t)
	assert.True(t, s.Refused)
	require.NotZero(t, s.Until)
	assert.InDelta(t, 15, time.Until(s.Until).Minutes(), 1)
}

// TestShadow checks that a rule which only watches says so.
func TestShadow(t *testing.T) {
	l := open(t, redistest.Real(t), Options{}, Policy{Name: "p", Rules: rulesOf("new: 1/1h per ip shadow; some: 1/2h per ip shadow enforced 10; all: 1/3h per ip")})
	for _, r := range l.Rules() {
		s := must.Get(l.state(t.Context(), r, "192.0.2.1", ""))(t)
		assert.Equal(t, r.Name == "new", s.Shadow, r.Name)
	}
}
