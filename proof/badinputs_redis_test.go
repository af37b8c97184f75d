package proof

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/faultproxy"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/lua"
	"github.com/routelimit/limit/rules"
	"github.com/routelimit/limit/stores/redisstore"
)

// onRedis calls runs for a policy "p" on a Redis whose keys are deleted for each framework, but
// for the token of its data.
// It returns the number of decisions of each mode.
func (r *row) onRedis(client *redis.Client, options *redisstore.Options, want int, ask func(http.Handler), rules ...limit.Rule) map[string]int {
	r.Helper()
	modes := make(map[string]int)
	r.runs(want, site{store: redisstore.New(client, options), options: observed(modes), rules: []limit.RuleSet{limit.Named("p", rules...)}},
		func(h http.Handler) {
			if keys := r.stored(client); len(keys) > 0 {
				require.NoError(r, client.Del(r.Context(), keys...).Err())
			}
			ask(h)
		})
	return modes
}

// stored returns all keys but the token of the data.
func (r *row) stored(client *redis.Client) []string {
	r.Helper()
	keys := must.Get(client.Keys(r.Context(), "*").Result())(r)
	return slices.DeleteFunc(keys, func(key string) bool { return strings.Contains(key, ":token:{") })
}

// admitted makes more requests than a policy of one shared rule admits, and returns
// how many it admitted.
func (r *row) admitted(limiter *limit.Limiter, rules limit.RuleSet) (n, undecided int) {
	r.Helper()
	policy := bind(limiter, rules)
	for range rules.Rules()[0].Limit + 3 {
		d, err := policy.Take(r.Context(), limit.Request{})
		if err != nil {
			require.ErrorIs(r, err, limit.ErrUndecided)
			undecided++
		} else if d.Allowed {
			n++
		}
	}
	return n, undecided
}

// forms has a rule for each form of stored state.
var forms = []limit.Rule{
	{Name: "log", Limit: 5, Window: time.Minute}, {Name: "long", Limit: 5, Window: 2 * time.Hour}, {Name: "ring", Limit: 150, Window: time.Hour},
	{Name: "fixed", Limit: 5, Window: time.Hour, Algorithm: limit.FixedWindow{}},
	{Name: "cells", Limit: 5, Window: time.Hour, Algorithm: limit.SlidingCells{Cells: 10}},
	{Name: "counter", Limit: 5, Window: time.Hour, Algorithm: limit.SlidingCounter{}},
	{Name: "token", Limit: 5, Window: time.Hour, Algorithm: limit.TokenBucket{Burst: 5}},
	{Name: "leaky", Limit: 5, Window: time.Hour, Algorithm: limit.LeakyBucket{Burst: 5}},
}

// shared returns a policy of one rule that all requests share, with the rule's name.
func shared(rule limit.Rule) limit.RuleSet {
	rule.Key = limit.Everyone
	return limit.Named(rule.Name, rule)
}

// stateKey returns the key of Redis that holds the state of a shared rule.
func stateKey(rule limit.Rule) string { return redisKey("limit", rule.Name, rule.Name, "") }

// takeAt takes all units of a shared rule at a time that it passes to the script.
func (r *row) takeAt(client *redis.Client, rule limit.Rule, at time.Time) {
	r.Helper()
	charge := []core.Charge{{Policy: rule.Name, Rule: rule.Name, Cost: rule.Limit, Quota: core.Quota{Limit: rule.Limit, Window: rule.Window.Microseconds()}}}
	switch q := &charge[0].Quota; a := rule.Algorithm.(type) {
	case limit.FixedWindow:
		q.Algorithm = core.FixedWindow
	case limit.SlidingCells:
		q.Algorithm, q.Cells = core.SlidingCells, int64(a.Cells)
	case limit.SlidingCounter:
		q.Algorithm = core.SlidingCounter
	case limit.TokenBucket:
		q.Algorithm, q.Burst = core.TokenBucket, a.Burst
	case limit.LeakyBucket:
		q.Algorithm, q.Burst = core.LeakyBucket, a.Burst
	}
	asks := []core.Ask{{Charges: charge}}
	script := lua.NewRules("limit", asks)
	keys, args := script.Encode(fmt.Sprint(at.UnixMicro()), 1, [][]core.Ask{asks})
	reply := must.Get(client.Eval(r.Context(), script.Script.Text, keys, append(args, 0)...).Int64Slice())(r)
	require.EqualValues(r, 1, reply[1], "%s: admitted", rule.Name)
}

// badKeys are keys that clients write, and bad values and replies of Redis.
var badKeys = []badInput{
	{46, "keys with braces", func(r *row) {
		values := []string{"}", "{}", "{a}{b}", "a}:b", "{", "}{", "{}:{}", ":", "%7D", "p}:per-header-x-api-key-1h:{"}
		random := rand.New(rand.NewPCG(1, 2))
		for i := range 300 {
			v := fmt.Sprint(i)
			for range random.IntN(8) {
				v += string("{}:%ab"[random.IntN(6)])
			}
			values = append(values, v)
		}
		client := redistest.Client(r)
		// Refusals of more than one unit are not remembered, so that Redis decides all.
		pair := limit.Per(apiKey, time.Hour, 2)
		pair.Cost = rules.CostBy("units", func(*http.Request) int64 { return 2 })
		modes := r.onRedis(client, &patient, len(values), func(h http.Handler) {
			for _, v := range values {
				r.send(h, 2, http.StatusTooManyRequests, "X-Api-Key", v)
			}
			for _, key := range r.stored(client) {
				_, after, _ := strings.Cut(key, "{")
				tag, _, _ := strings.Cut(after, "}")
				assert.Equal(r, "p", tag, "what Redis hashes of %s", key)
			}
		}, pair, limit.Global(time.Hour, 100_000))
		assert.Equal(r, map[string]int{"exact": 3 * 2 * len(values)}, modes)
	}},
	{47, "keys that are commands", func(r *row) {
		client := redistest.Client(r)
		values := []string{"\r\nFLUSHALL\r\n", "\r\n*1\r\n$8\r\nFLUSHALL\r\n", "k\nFLUSHALL", "') redis.call('FLUSHALL') --", `"; FLUSHALL; "`}
		r.onRedis(client, &patient, len(values), func(h http.Handler) {
			require.NoError(r, client.Set(r.Context(), "another", "value", 0).Err())
			for _, v := range values {
				r.send(h, 2, http.StatusTooManyRequests, "X-Api-Key", v)
			}
			assert.Equal(r, "value", client.Get(r.Context(), "another").Val())
			assert.Len(r, r.stored(client), 1+len(values))
		}, limit.Per(apiKey, time.Hour, 1))
	}},
	{48, "keys that are no text, and long ones", func(r *row) {
		client := redistest.Client(r)
		values := []string{"\x00", "\xff", strings.Repeat("\x00", 128), strings.Repeat("\xff", 129), strings.Repeat("k", 1<<20), strings.Repeat("k", 1<<20) + "1"}
		for _, secret := range [][]byte{nil, []byte("0123456789abcdef")} {
			r.onRedis(client, &redisstore.Options{Timeout: patient.Timeout, Secret: secret}, len(values), func(h http.Handler) {
				for _, v := range values {
					r.send(h, 2, http.StatusTooManyRequests, "X-Api-Key", v)
				}
				for _, key := range r.stored(client) {
					key = strings.TrimPrefix(key, lua.KeyPrefix("limit", &core.Charge{Policy: "p", Rule: "per-header-x-api-key-1h"}))
					assert.LessOrEqual(r, len(key), 3*128)
					assert.True(r, secret == nil || len(key) == 22, key)
					assert.False(r, strings.ContainsFunc(key, func(c rune) bool { return c <= ' ' || c > '~' }), "%q", key)
				}
			}, limit.Per(apiKey, time.Hour, 1))
		}
	}},
	{49, "keys that join to the same", func(r *row) {
		client := redistest.Client(r)
		a, b := limit.ByHeader("A"), limit.ByHeader("B")
		pairs := [][]string{{"A", "a", "B", "b_c"}, {"A", "a_b", "B", "c"}, {"A", "a b", "B", ""}, {"A", "a", "B", " b"}, {"A", "1:a", "B", ""}, {"A", "", "B", "1:a"},
			{"A", "a:b", "B", "c"}, {"A", "a", "B", "b:c"}}
		r.onRedis(client, &patient, len(pairs), func(h http.Handler) {
			for _, headers := range pairs {
				r.send(h, 2, http.StatusTooManyRequests, headers...)
			}
			assert.Len(r, r.stored(client), len(pairs))
		}, limit.Per(a.And(b), time.Hour, 1))
		r.onRedis(client, &patient, 2, func(h http.Handler) {
			r.send(h, 2, http.StatusTooManyRequests, "A", "x")
			r.send(h, 2, http.StatusTooManyRequests, "B", "x")
		}, limit.Per(a.Or(b), time.Hour, 1))
	}},
	{50, "a key of another type", func(r *row) {
		// 503, even with Allow, which is for a Redis that is unavailable. This one answers.
		client := redistest.Client(r)
		allow := limit.Global(time.Hour, 5)
		allow.OnStoreError = limit.Allow
		foreign := redisKey("limit", "p", "global-1h", "")
		modes := r.onRedis(client, &patient, 5, func(h http.Handler) {
			require.NoError(r, client.HSet(r.Context(), foreign, "field", "value").Err())
			for range 8 {
				assert.Equal(r, http.StatusServiceUnavailable, do(h, "192.0.2.1:1", "/login").Code)
			}
			assert.Equal(r, []string{foreign}, r.stored(client), "nothing was taken of the other rule")
			assert.Equal(r, "value", client.HGet(r.Context(), foreign, "field").Val())
			require.NoError(r, client.Del(r.Context(), foreign).Err())
			r.send(h, 8, http.StatusTooManyRequests)
		}, limit.PerIP(time.Hour, 5), allow)
		assert.Equal(r, map[string]int{"undecided": 3 * 8, "exact": 3 * 5, "remembered": 3 * 3}, modes)
	}},
	{51, "states that are truncated, of another version, or garbage", func(r *row) {
		client := redistest.Client(r)
		limiter := limit.New(unhurried(client, 1), nil)
		for _, rule := range forms {
			rules, key := shared(rule), stateKey(rule)
			n, _ := r.admitted(limiter, rules)
			r.ran(n, int(rule.Limit), rule.Name)
			state := client.Get(r.Context(), key).Val()
			values := []string{"", "x", "hello, world: 1234567890123456789012345678901234567890", strings.Repeat("\x00", 40),
				strings.Repeat("\xff", 40), "z" + state, state + "z", state + state}
			for i := range min(len(state), 40) {
				values = append(values, state[:i])
			}
			for _, v := range values {
				// A new Limiter, since the guard of the first one knows what it has admitted.
				require.NoError(r, client.Set(r.Context(), key, v, time.Hour).Err())
				n, undecided := r.admitted(limit.New(unhurried(client, 1), nil), rules)
				r.opens += max(0, n-int(rule.Limit))
				assert.LessOrEqual(r, n, int(rule.Limit), "%s: %q", rule.Name, v)
				if undecided > 0 {
					assert.Zero(r, n, "%s: %q", rule.Name, v)
					assert.Equal(r, v, client.Get(r.Context(), key).Val(), "an error changes nothing")
				}
			}
		}
	}},
	{52, "a key without a TTL", func(r *row) {
		client := redistest.Client(r)
		limiter := limit.New(unhurried(client, 1), nil)
		for _, rule := range forms {
			must.Get(bind(limiter, shared(rule)).Take(r.Context(), limit.Request{}))(r)
			require.True(r, client.Persist(r.Context(), stateKey(rule)).Val(), rule.Name)
			n, _ := r.admitted(limiter, shared(rule))
			r.ran(n, int(rule.Limit)-1, rule.Name)
			// The entries of the key have expired, and the next write sets a TTL. In a ring,
			// that is the next window's.
			r.takeAt(client, rule, time.Now().Add(2*rule.Window))
			assert.Positive(r, client.PTTL(r.Context(), stateKey(rule)).Val(), rule.Name)
		}
	}},
	{53, "states of in ten years", func(r *row) {
		client := redistest.Client(r)
		for _, rule := range forms {
			r.takeAt(client, rule, time.Now().AddDate(10, 0, 0))
			limiter := limit.New(unhurried(client, 1), nil)
			d := must.Get(bind(limiter, shared(rule)).Take(r.Context(), limit.Request{Cost: rule.Limit}))(r)
			r.ran(map[bool]int{true: 1}[d.Allowed], 0, rule.Name)
			assert.True(r, 0 < d.RetryAfter && d.RetryAfter <= 2*rule.Window, "%s: %v", rule.Name, d.RetryAfter) // a counter has two
		}
	}},
	{54, "replies of no shape", func(r *row) {
		direct := redistest.Client(r)
		proxy := faultproxy.Start(r, direct.Options().Addr)
		client := redistest.Closing(r, redis.NewClient(&redis.Options{Addr: proxy.Addr(), DB: direct.Options().DB}))
		const most = "9223372036854775807"
		replies := map[string]string{ // in the protocol of Redis, and the mode of the decision
			"+OK": "local", ":1": "local", "$-1": "local", "*0": "local", "*-1": "local", "?": "local", "_": "local", ",nan": "local",
			"*1 :5": "local", "*2 :1 +x": "local", "*2 :1 $-1": "local", "*6 :1 :1 :4 :0 :0 $-1": "local", "*6 :1 :1 :4 :0 :0 +nan": "local",
			"*6 :1 :1 :-5 :0 :0 :N": "undecided", "*6 :1 :1 :" + most + " :0 :0 :N": "undecided", // as if another program had written the key
			"*6 :1 :1 :4 :-2 :0 :N": "undecided", "*6 :1 :1 :4 :0 :-1 :N": "undecided", "*6 :1 :1 :4 :0 :" + most + " :N": "undecided",
			"*6 :-1 :1 :4 :0 :0 :N": "local", "*6 :1 :" + most + " :4 :0 :0 :N": "local", "*6 :1 :-2 :4 :0 :0 :N": "local", "*5 :1 :1 :4 :0 :N": "local",
			"-ERR invalid": "undecided", "-WRONGTYPE invalid": "undecided", "-INVALID": "undecided",
		}
		for _, reply := range slices.Sorted(maps.Keys(replies)) {
			proxy.Break(forge(reply))
			want := map[string]int{"local": 5}[replies[reply]]
			modes := r.onRedis(client, &patient, want, func(h http.Handler) {
				for range 8 {
					answer := do(h, "192.0.2.1:1", "/login")
					r.printable(answer.Header())
				}
			}, limit.PerIP(time.Hour, 5))
			assert.Equal(r, map[string]int{replies[reply]: 3 * 8}, modes, reply)
		}
	}},
	{55, "replies to another call", func(r *row) {
		direct := redistest.Client(r)
		proxy := faultproxy.Start(r, direct.Options().Addr)
		client := redistest.Closing(r, redis.NewClient(&redis.Options{Addr: proxy.Addr(), DB: direct.Options().DB}))
		for _, choice := range []core.OnError{limit.Local, limit.Refuse} {
			// Refusals of more than one unit are not remembered, so that Redis is asked.
			rule := limit.PerIP(time.Hour, 10)
			rule.Cost, rule.OnStoreError = rules.CostBy("units", func(*http.Request) int64 { return 2 }), choice
			modes := r.onRedis(client, &patient, 5, func(h http.Handler) {
				proxy.Break(nil)
				r.send(h, 5, http.StatusOK)
				proxy.Break(forge("*6 :1 :1 :4 :0 :0 :7")) // admitted, is the reply to another
				r.send(h, 8, map[core.OnError]int{limit.Local: http.StatusTooManyRequests, limit.Refuse: http.StatusServiceUnavailable}[choice])
			}, rule)
			assert.Equal(r, 3*5, modes["exact"])
		}
	}},
}

// forge answers every call of a script with a reply, in which N is the number of the
// call.
func forge(reply string) func(faultproxy.Command) faultproxy.Fault {
	return func(c faultproxy.Command) faultproxy.Fault {
		if c.Name != "evalsha" && c.Name != "eval" {
			return faultproxy.Fault{}
		}
		text := reply
		if text[0] == '*' {
			text = strings.ReplaceAll(strings.ReplaceAll(text, " ", "\r\n"), "N", c.Words[len(c.Words)-1])
		}
		return faultproxy.Fault{Kind: faultproxy.Forge, Reply: text + "\r\n"}
	}
}
