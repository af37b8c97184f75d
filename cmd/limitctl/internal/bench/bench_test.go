package bench

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
)

func policy(t *testing.T, text string) Policy {
	t.Helper()
	p, err := NewPolicy("p", limit.MustParse(text).Rules())
	require.NoError(t, err)
	return p
}

// TestAdmitting checks that rules keep their limits, and admit more than a Redis decides.
func TestAdmitting(t *testing.T) {
	p := policy(t, "100/1m per ip; 1000000/1h global sliding-cells; 5/1d per user token-bucket burst 2; 1/month global zone UTC; 3/1s per ip concurrency; 2/1m global distinct query user")
	assert.Equal(t, []string{"ip", "query user", "user"}, p.keys)
	rules := p.admitting(1000, 256)
	assert.Equal(t, []any{int64(100), 66_666 * time.Microsecond}, []any{rules[0].Limit, rules[0].Window}, "of 1,500 a second")
	assert.Equal(t, []any{int64(1_000_000), 2 * time.Second}, []any{rules[1].Limit, rules[1].Window}, "of 500,000 a second")
	assert.Equal(t, []any{int64(15), 10 * time.Millisecond}, []any{rules[2].Limit, rules[2].Window})
	assert.GreaterOrEqual(t, rules[2].Algorithm.(limit.TokenBucket).Burst, rules[2].Limit)
	assert.EqualValues(t, int64(core.MaxLimit), rules[3].Limit)
	assert.Equal(t, []any{int64(256), time.Second}, []any{rules[4].Limit, rules[4].Window})
	assert.Equal(t, []any{int64(1000), time.Minute}, []any{rules[5].Limit, rules[5].Window})
	for _, clients := range []int{1, 7, 1_000_000} {
		_, err := limit.New(nil, nil).Policy(limit.Named("p", p.admitting(clients, 10_000)...))
		assert.NoError(t, err)
	}
	assert.EqualValues(t, 5000, p.admitting(1, 1)[0].Limit, "one client sends all requests")
	assert.Equal(t, limit.MustParse("100/1m per ip").Rules()[0], p.rules[0], "the policy has not changed")
}

func TestRequest(t *testing.T) {
	p := policy(t, "1/1s per (ip or user) and header X-Key")
	r := p.request(70_000)
	assert.Equal(t, map[string]string{"ip": "10.1.17.112", "user": "client-70000", "header X-Key": "client-70000"}, r.Keys)
}

func TestVerdict(t *testing.T) {
	all := float64(cores())
	run := func(callers int, perSecond, redis, client float64) Run {
		return Run{Callers: callers, Decisions: 100, PerSecond: perSecond, ServerBusy: redis, ClientCores: client,
			Latency: Latency{P50: Micros(210 * time.Microsecond)}, PerCall: 12, Script: Micros(31 * time.Microsecond)}
	}
	for _, c := range []struct {
		name    string
		runs    []Run
		local   bool
		climbed bool
		limit   string
		why     string
		sum     string
	}{
		{"Redis", []Run{run(1, 4_000, 0.3, 0.1), run(64, 91_234, 0.97, 0.5*all)}, false, true, RedisCPU,
			"Redis's CPU. The thread of Redis that runs commands was 97 % busy with 64 callers",
			"This Redis decides about 91,000 requests a second with two rules; a lone decision takes 0.21 ms, of which 0.15 ms is the round trip."},
		{"client", []Run{run(1, 4_000, 0.3, 0.1), run(64, 91_234, 0.5, 0.9*all)}, false, true, ClientCPU, "not Redis", "at least 91,000"},
		{"shared", []Run{run(64, 91_234, 0.6, all-0.7)}, true, true, SharedCPU, "which Redis and this program share", "while it shares this machine with the benchmark."},
		{"growing", []Run{run(64, 50_000, 0.2, 0.1), run(256, 91_234, 0.3, 0.1)}, false, true, NotReached, "--callers 512,1024", "at least 91,000"},
		{"waiting", []Run{run(64, 90_000, 0.2, 0.1), run(256, 91_934, 0.3, 0.1)}, false, true, RoundTrip, "callers waited for the network", "at least 91,000"},
		{"interrupted", []Run{run(4, 91_234, 0.3, 0.1)}, false, false, NotReached, "interrupted", "at least 91,000"},
		{"silent", []Run{run(64, 90_000, 0, 0.1)}, false, false, RoundTrip, "Redis does not say how busy it was", "at least 90,000 requests a second with two rules."},
	} {
		hot := run(64, 1e6, 1, all)
		hot.Hot, hot.Unanswered, hot.Refused = true, 7, 1
		r := Result{Runs: append(c.runs, hot), RoundTrip: Micros(150 * time.Microsecond), Server: Server{Local: c.local},
			Policies: []Policy{policy(t, "1/1s per ip; 1/1s global")}}
		r.Interrupted = c.name == "interrupted"
		r.judge(c.climbed)
		assert.Equal(t, c.limit, r.Limit, c.name)
		assert.Contains(t, r.Why, c.why, c.name)
		assert.Contains(t, r.Summary, c.sum, c.name)
		notes := strings.Join(r.Notes, "\n")
		assert.Contains(t, notes, "With 64 callers and one client, Redis did not decide 7 requests")
		assert.Contains(t, notes, "With 64 callers and one client, 1 of 100 requests were refused")
	}
}

func TestFlat(t *testing.T) {
	for _, c := range []struct {
		perSecond []float64
		flat      bool
	}{{[]float64{100, 105, 90}, true}, {[]float64{100, 90, 120}, false}, {[]float64{100, 200, 205, 210}, true}, {[]float64{100, 200, 205, 230}, false}} {
		var r Result
		for _, n := range c.perSecond {
			r.Runs = append(r.Runs, Run{PerSecond: n})
		}
		assert.Equal(t, c.flat, r.flat(), c.perSecond)
	}
}

func TestWords(t *testing.T) {
	for d, want := range map[time.Duration]string{20_400: "20 µs", 211_000: "0.21 ms", 12_340_000: "12.3 ms", 123_400_000: "123 ms", 1_500_000_000: "1.50 s"} {
		assert.Equal(t, want, short(Micros(d)))
	}
	for n, want := range map[float64]string{1: "1 caller", 999: "999 callers", 1000: "1,000 callers", 1_234_567: "1,234,567 callers"} {
		assert.Equal(t, want, count(n, "caller"))
	}
	assert.InDelta(t, 89_000, rounded(88_735, math.Round), 1e-6)
	assert.InDelta(t, 160_000, rounded(166_035, math.Floor), 1e-6)
	assert.InDelta(t, 4.3, rounded(4.32, math.Round), 1e-6)
	assert.Zero(t, rounded(0, math.Floor))
}
