package limit

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/internal/must"
)

// TestGivenTerms has more overrides than package terms remembers. A decision with one of them
// has its limits, and makes no terms once they are known.
func TestGivenTerms(t *testing.T) {
	limits := map[string]int64{}
	l := New(nil, &Options{Override: func(_, rule, _ string) int64 { return limits[rule] }})
	p := mustPolicy(l, Named("p", MustParse("a: 1000/1h global plan pro 2000; b: 3000/1h per user; c: 5/1ms per user").Rules()...))
	take := func(plan string) []int64 {
		d := must.Get(p.Take(t.Context(), Request{Keys: map[string]string{"user": "alice"}, Plan: plan}))(t)
		rules := slices.Collect(d.Rules())
		return []int64{rules[0].Limit, rules[1].Limit}
	}
	for i := range int64(2*1000 + 10) {
		limits["b"] = 5000 + i
		require.Equal(t, []int64{1000, 5000 + i}, take(""))
		require.Equal(t, []int64{2000, 5000 + i}, take("pro"))
	}
	clear(limits)
	require.Equal(t, []int64{1000, 3000}, take(""))
	limits["a"] = 1_000_000 // too large for the algorithm
	require.Equal(t, []int64{100_000, 3000}, take("pro"))

	limits["a"] = 7000
	request := Request{Keys: map[string]string{"user": "bob"}}
	most := 5.0 // under the race detector, where pools drop what is put back; making terms takes 40
	assert.Less(t, testing.AllocsPerRun(1000, func() { p.Take(t.Context(), request) }), most)
}

// TestGivenCaller has a handler say who sends a request: the rule, Exempt and Bar must not take the
// peer of the connection, or the user of the HTTP request, for that client.
func TestGivenCaller(t *testing.T) {
	var met []string
	see := func(c Client) bool {
		met = append(met, c.IP().String(), c.User())
		return false
	}
	service := func(*http.Request) string { return "service" }
	l := New(nil, &Options{Caller: Caller[*http.Request]{User: service}, Exempt: see})
	p := mustPolicy(l, Named("p", MustParse("1/1h per ip exempt ip 192.0.2.0/24 exempt ip 10.0.0.0/8; b: 1/1h per user exempt user service exempt user root").Rules()...))
	for _, test := range []struct {
		ip, user string
		exempt   bool
	}{{"203.0.113.9", "alice", false}, {"2001:db8::1", "", false}, {"10.0.0.1", "root", true}} {
		given := Request{Keys: map[string]string{"ip": test.ip, "user": test.user}}
		r := httptest.NewRequest("GET", "/", nil) // of the service, from 192.0.2.1
		met = nil
		require.NoError(t, p.Serve(httptest.NewRecorder(), r, given, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			for rule := range DecisionFrom(r.Context()).Rules() {
				assert.Equal(t, test.exempt, rule.Exempt, "%s of %s, %s", rule.Name, test.ip, test.user)
			}
		})))
		assert.Equal(t, []string{test.ip, test.user}, met)
		d := must.Get(p.Take(t.Context(), given))(t)
		assert.Equal(t, test.exempt, d.Allowed, "the request of %s has taken its unit", test.ip)
	}
}
