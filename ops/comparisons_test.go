package ops_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/operate"
)

// counts are the verdicts of a shadow (new) and of the rule that it may replace (old).
type counts struct{ bothAdmit, bothRefuse, onlyNewRefuses, onlyOldRefuses int64 }

func (n *counts) observe(d limit.Decision) {
	for _, pair := range operate.Comparisons(d) {
		n.count(pair.Old.Allowed, pair.New.Allowed)
	}
}

func (n *counts) count(old, new bool) {
	switch {
	case old && new:
		n.bothAdmit++
	case old:
		n.onlyNewRefuses++
	case new:
		n.onlyOldRefuses++
	default:
		n.bothRefuse++
	}
}

// TestAgreementIsAReplay sends random schedules to two rules together, and to each of
// them alone. The counts must be those of the two replays.
func TestAgreementIsAReplay(t *testing.T) {
	const texts = "20/1m per user; 3/5s per user; 10/1m per user token-bucket burst 4; 30/1m per user sliding-cells; " +
		"8/20s per user fixed-window; 25/1m per user leaky-bucket burst 3; 15/1m per user sliding-counter"
	rules := strings.Split(texts, "; ")
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			old, new := rules[r.IntN(len(rules))], rules[r.IntN(len(rules))]
			policy := func(name, text string) *limit.Policy {
				set := limit.Named(name)
				require.NoError(t, set.UnmarshalText([]byte(text)))
				p := must.Get(limit.New(nil, nil).Policy(set))(t)
				return p
			}
			together := policy("p", "old: "+old+"; new: "+new+" shadow replaces old")
			oldAlone, newAlone := policy("p", old), policy("p", new)
			var got, want counts
			for range 2000 {
				request := limit.Request{Keys: map[string]string{"user": fmt.Sprint(r.IntN(3))}, Cost: 1 + r.Int64N(2)}
				take := func(p *limit.Policy) bool {
					d := must.Get(p.Take(t.Context(), request))(t)
					if p == together {
						got.observe(d)
					}
					return d.Allowed
				}
				admitted, a, b := take(together), take(oldAlone), take(newAlone)
				require.Equal(t, a, admitted, "a shadow changes nothing")
				want.count(a, b)
				time.Sleep(time.Duration(r.ExpFloat64() * float64(time.Second)))
			}
			assert.Equal(t, want, got, "%s, %s", old, new)
		})
	}
}

// TestAgreementOfLayers sends random schedules through two rules around a set that refuses
// half of the requests. The counts must be those of two replays in which these take nothing.
func TestAgreementOfLayers(t *testing.T) {
	const texts = "20/1m per user; 3/5s per user; 10/1m per user token-bucket burst 4; 30/1m per user sliding-cells; " +
		"8/20s per user fixed-window; 25/1m per user leaky-bucket burst 3; 15/1m per user sliding-counter"
	rules := strings.Split(texts, "; ")
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 2))
			old, new := rules[r.IntN(len(rules))], rules[r.IntN(len(rules))]
			policy := func(l *limit.Limiter, text string) *limit.Policy {
				set := limit.Named("p")
				require.NoError(t, set.UnmarshalText([]byte(text)))
				p := must.Get(l.Policy(set))(t)
				return p
			}
			limiter := limit.New(nil, &limit.Options{Caller: limit.Caller[*http.Request]{User: func(r *http.Request) string { return r.URL.Path }}})
			inner := must.Get(limiter.Policy(limit.Named("inner", limit.Global(24*365*time.Hour, 1))))(t)
			_, err := inner.Take(t.Context(), limit.Request{}) // the only one
			require.NoError(t, err)
			refusing := inner.Handler(http.HandlerFunc(ok))
			together := policy(limiter, "old: "+old+"; new: "+new+" shadow replaces old").Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.RawQuery == "" {
					refusing.ServeHTTP(w, r)
				}
			}))
			oldAlone, newAlone := policy(limit.New(nil, nil), old), policy(limit.New(nil, nil), new)
			var got, want counts
			operate.Observe(limiter, func(_ *http.Request, d limit.Decision, _ error) { got.observe(d) })
			for range 2000 {
				user, query := fmt.Sprint("/", r.IntN(3)), [...]string{"", "?admit"}[r.IntN(2)]
				send(together, "GET", user+query)
				request := limit.Request{Keys: map[string]string{"user": user}, Settle: true}
				a := must.Get(oldAlone.Take(t.Context(), request))(t)
				b := must.Get(newAlone.Take(t.Context(), request))(t)
				for _, d := range []limit.Decision{a, b} {
					if a.Allowed && d.Allowed && query == "" { // what the set refuses itself stays charged to its shadow
						require.NoError(t, d.Settle(t.Context(), 0))
					}
				}
				want.count(a.Allowed, b.Allowed)
				time.Sleep(time.Duration(r.ExpFloat64() * float64(time.Second)))
			}
			assert.Equal(t, want, got, "%s, %s", old, new)
			assert.NotZero(t, want.bothAdmit)
		})
	}
}

// TestNothingToCompare checks that other decisions count nothing and cost nothing.
func TestNothingToCompare(t *testing.T) {
	var got counts
	got.observe(limit.Decision{})
	for _, text := range []string{"5/1h global", "5/1h global shadow", "old: 5/1h global refuse mark"} {
		p := must.Get(limit.New(nil, nil).Policy(limit.Named("p", limit.MustParse(text).Rules()...)))(t)
		d := must.Get(p.Take(t.Context(), limit.Request{}))(t)
		assert.Zero(t, testing.AllocsPerRun(100, func() { got.observe(d) }), text)
	}
	assert.Zero(t, got)
}

// TestEnforcedKeysAreNotCompared checks that only keys are counted for which the shadow
// only watches.
func TestEnforcedKeysAreNotCompared(t *testing.T) {
	p := must.Get(limit.New(nil, nil).Policy(limit.Named("p",
		limit.MustParse("old: 5/1h per user; new: 1/1h per user shadow enforced 50 replaces old").Rules()...)))(t)
	var got counts
	enforced := int64(0)
	for i := range 200 {
		for range 2 {
			d := must.Get(p.Take(t.Context(), limit.Request{Keys: map[string]string{"user": fmt.Sprint(i)}}))(t)
			got.observe(d)
			if !d.Allowed {
				enforced++
			}
		}
	}
	assert.Equal(t, counts{bothAdmit: 200 - enforced, onlyNewRefuses: 200 - enforced}, got)
	assert.InDelta(t, 100, enforced, 30)
}

// TestAThirdRule checks what the documentation says of other enforced rules: a request
// that one refuses charges the shadow, and not the rule that it may replace.
func TestAThirdRule(t *testing.T) {
	p := must.Get(limit.New(nil, nil).Policy(limit.Named("p",
		limit.MustParse("old: 3/1h per user; new: 3/1h per user shadow replaces old; third: 1/1h per user").Rules()...)))(t)
	var got counts
	for range 5 {
		d := must.Get(p.Take(t.Context(), limit.Request{Keys: map[string]string{"user": "a"}}))(t)
		got.observe(d)
	}
	assert.Equal(t, counts{bothAdmit: 3, onlyNewRefuses: 2}, got)
}
