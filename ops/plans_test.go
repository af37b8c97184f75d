package ops_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/operate"
	"github.com/routelimit/limit/ops/control"
	"github.com/routelimit/limit/ops/overrides"
	"github.com/routelimit/limit/stores/guard"
	"github.com/routelimit/limit/stores/redisstore"
)

type account struct{ user, plan string }

type accountKey struct{}

func Example_plans() {
	accountOf := func(r *http.Request) account { a, _ := r.Context().Value(accountKey{}).(account); return a }

	limiter := limit.New(nil, &limit.Options{Caller: limit.Caller[*http.Request]{
		User: func(r *http.Request) string { return accountOf(r).user },
		Plan: func(r *http.Request) string { return accountOf(r).plan },
	}})
	mux := http.NewServeMux()
	mux.Handle("GET /items", limiter.Limit(limit.MustParse("1/1m per user plan pro 2 plan enterprise 10k"))(http.HandlerFunc(ok)))

	app := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // stands for authentication
		user, plan, _ := strings.Cut(r.Header.Get("Authorization"), ":")
		mux.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), accountKey{}, account{user, plan})))
	})
	for _, token := range []string{"alice:free", "alice:free", "bob:pro", "bob:pro", "bob:pro"} {
		w := send(app, "GET", "/items", "Authorization", token)
		fmt.Println(token, w.Code, w.Header().Get("RateLimit-Policy"))
	}
	// Output:
	// alice:free 200 "per-user-1m";q=1;w=60
	// alice:free 429 "per-user-1m";q=1;w=60
	// bob:pro 200 "per-user-1m";q=2;w=60
	// bob:pro 200 "per-user-1m";q=2;w=60
	// bob:pro 429 "per-user-1m";q=2;w=60
}

func Example_classes() {
	limiter := limit.New(nil, &limit.Options{Caller: limit.Caller[*http.Request]{Class: func(r *http.Request) string {
		if r.URL.Path == "/checkout" {
			return "critical"
		}
		return "" // default
	}}})
	shop, err := limiter.Policy(limit.Named("shop", limit.MustParse("3/1m global reserve critical 1").Rules()...))
	if err != nil {
		panic(err)
	}
	h := shop.Handler(http.HandlerFunc(ok))
	for _, path := range []string{"/items", "/items", "/items", "/checkout"} {
		fmt.Println(path, send(h, "GET", path).Code)
	}
	// Output:
	// /items 200
	// /items 200
	// /items 429
	// /checkout 200
}

// TestReserves holds the table of reserves of the page.
func TestReserves(t *testing.T) {
	for words, left := range map[string][2]int{"reserve critical 20": {20, 20}, "reserve default 20": {0, 20},
		"reserve critical 20 reserve default 10": {20, 30}} {
		assert.Contains(t, read(t, "../docs/plans.md"), "| `"+words+"` |")
		for i, class := range []string{"default", "background"} {
			policy := must.Get(limit.New(nil, nil).Policy(limit.Named("p", limit.MustParse("100/1h global "+words).Rules()...)))(t)
			admitted := 0
			for range 100 {
				d := must.Get(policy.Take(t.Context(), limit.Request{Class: class}))(t)
				if d.Allowed {
					admitted++
				}
			}
			assert.Equal(t, 100-left[i], admitted, "%s: %s", words, class)
		}
	}
}

// raise gives a user 500 requests an hour for a day.
func raise(ctx context.Context, o *overrides.Overrides, api *limit.Policy, user string) error {
	key, err := operate.Key(api, "per-user-1h", map[string]string{"user": user})
	if err != nil {
		return err
	}
	return o.Set(ctx, overrides.Override{Policy: "api", Rule: "per-user-1h", Key: key, Limit: 500, Reason: "launch"}, 24*time.Hour, "bob")
}

// TestOverridesOfPage runs the program of the page on three instances: each has the new
// limit within a second.
func TestOverridesOfPage(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	addr := redistest.Launch(t).Addr
	var all []*limit.Policy
	var operators []*overrides.Overrides
	for range 3 {
		client := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: addr}))

		o := overrides.New(ctx, control.New(client, &control.Options{Prefix: "shop"}), nil)
		limiter := limit.New(redisstore.New(client, &redisstore.Options{Prefix: "shop"}), &limit.Options{
			Instances: 3, // that share this Redis
			Override:  o.Limit,
		})

		operators = append(operators, o)
		api := must.Get(limiter.Policy(limit.Named("api", limit.PerUser(time.Hour, 2))))(t)
		all = append(all, api)
	}
	take := func(i int, user string) limit.Decision {
		d := must.Get(all[i].Take(ctx, limit.Request{Keys: map[string]string{"user": user}}))(t)
		return d
	}
	// On a busy machine a call can take longer than the timeout of the store: then another user tries.
	byRedis := func(d limit.Decision) bool { return d.Mode == core.ModeExact || d.Mode == core.ModeRemembered }
	several := func(i, n int, name string) (user string, allowed []bool) {
		tries := 0
		redistest.Await(t, 20*time.Second, "decisions by Redis alone", func() bool {
			tries++
			user, allowed = fmt.Sprint(name, tries), nil
			all := true
			for range n {
				d := take(i, user)
				all = all && byRedis(d)
				allowed = append(allowed, d.Allowed)
			}
			return all
		})
		return user, allowed
	}
	alice, allowed := several(0, 3, "alice")
	assert.Equal(t, []bool{true, true, false}, allowed)
	began := time.Now()
	require.NoError(t, raise(ctx, operators[0], all[0], alice))
	for i := range all {
		redistest.Await(t, time.Second, "the override", func() bool { return take(i, alice).Allowed })
	}
	t.Logf("3 instances admit after %v", time.Since(began))
	pattern := overrides.Override{Policy: "api", Rule: "per-user-1h", Pattern: "free-*", Limit: 1}
	require.NoError(t, operators[0].Set(ctx, pattern, time.Hour, "bob"))
	for _, o := range operators {
		redistest.Await(t, time.Second, "the pattern", func() bool { return len(o.List()) == 2 })
	}
	_, allowed = several(2, 2, "free-dave")
	assert.Equal(t, []bool{true, false}, allowed)
	for user, want := range map[string]int64{alice: 500, "carol": 2, "free-erin": 1} {
		var d limit.Decision
		redistest.Await(t, 20*time.Second, "a decision by Redis", func() bool { d = take(1, user); return byRedis(d) })
		assert.Equal(t, want, slices.Collect(d.Rules())[0].Limit)
	}
	assert.ErrorContains(t, raiseWrong(ctx, operators[0], all[0]), `no rule has the name "per-user-1d": write one of per-user-1h`)
}

func raiseWrong(ctx context.Context, _ *overrides.Overrides, api *limit.Policy) error {
	_, err := operate.Key(api, "per-user-1d", map[string]string{"user": "alice"})
	return err
}

// TestLimitChanges compares what each algorithm keeps of 6 units when the limit of a key
// changes with the table of the page.
func TestLimitChanges(t *testing.T) {
	page := read(t, "../docs/changing-limits.md")
	for _, words := range []string{"sliding-log", "fixed-window", "sliding-cells", "sliding-counter", "token-bucket", "token-bucket burst 10", "leaky-bucket", "leaky-bucket burst 10",
		"queue burst 9", "concurrency", "distinct query v"} {
		row := "| `" + words + "` "
		for _, change := range []int64{20, 4} {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour))) // windows of the clock begin
				override := int64(0)
				limiter := limit.New(nil, &limit.Options{Override: func(string, string, string) int64 { return override }})
				policy := must.Get(limiter.Policy(limit.Named("p", limit.MustParse("10/1h global "+words).Rules()...)))(t)
				n := 0
				take := func() limit.Decision {
					n++
					d := must.Get(policy.Take(t.Context(), limit.Request{Keys: map[string]string{"query v": fmt.Sprint(n)}}))(t)
					return d
				}
				for range 6 {
					d := take()
					require.True(t, d.Allowed)
					defer d.Release()
				}
				override = change
				peeked := must.Get(policy.Peek(t.Context(), limit.Request{Keys: map[string]string{"query v": "new"}}))(t)
				row += fmt.Sprintf("| %d ", slices.Collect(peeked.Rules())[0].Remaining)
				if change == 4 {
					wait := "at once"
					switch {
					case words == "concurrency":
						wait = "when 3 are released"
					case !peeked.Allowed:
						wait = "after " + strings.NewReplacer("h0m0s", "h", "m0s", "m").Replace(peeked.RetryAfter.Round(time.Minute).String())
					}
					row += "| " + wait + " "
				}
			})
		}
		assert.Contains(t, page, row+"|", words)
	}
}

// TestPlansRoundTrips holds that each decision with plans, overrides, classes and
// exemptions is one command.
func TestPlansRoundTrips(t *testing.T) {
	client := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: redistest.Launch(t).Addr}))
	calls := func(commands ...string) (n int) {
		info := must.Get(client.Info(t.Context(), "commandstats").Result())(t)
		for _, command := range commands {
			if _, rest, found := strings.Cut(info, "cmdstat_"+command+":calls="); found {
				text, _, _ := strings.Cut(rest, ",")
				more := must.Get(strconv.Atoi(text))(t)
				n += more
			}
		}
		return n
	}
	store := guard.New(redisstore.New(client, &redisstore.Options{Timeout: time.Minute}), &guard.Options{Slow: time.Minute})
	limiter := limit.New(store, &limit.Options{Override: func(_, _, key string) int64 {
		if key == "user 7" {
			return 900
		}
		return 0
	}})
	policy := must.Get(limiter.Policy(limit.Named("api", limit.MustParse("1000/1h per user plan pro 2000 plan max 3000 token-bucket; "+
		"all: 100k/1h global reserve critical 10 plan pro 90k exempt user root").Rules()...)))(t)
	take := func(n int) {
		d := must.Get(policy.Take(t.Context(), limit.Request{Keys: map[string]string{"user": []string{"root", "user 7", "other"}[n%3]},
			Plan: []string{"", "pro", "max", "unknown"}[n%4], Class: []string{"", "critical", "background"}[n%5%3]}))(t)
		require.True(t, d.Allowed)
	}
	for n := range 60 {
		take(n) // loads the scripts
	}
	decisions, others := calls("evalsha"), calls("eval", "evalsha_ro")
	began := time.Now()
	for n := range 600 {
		take(n)
	}
	assert.Equal(t, 600, calls("evalsha")-decisions)
	assert.LessOrEqual(t, calls("eval", "evalsha_ro")-others, 3+int(time.Since(began)/time.Second), "the store looks at the server once a second")
}
