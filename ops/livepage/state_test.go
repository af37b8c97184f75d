package livepage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/stores/memstore"
)

var quiet = slog.New(slog.DiscardHandler)

// A failing store makes decisions in a mode, or none.
type failing struct {
	core.Store
	sync.Mutex // of what follows, where an outage lasts: the guard asks meanwhile
	mode       core.Mode
	err        error
}

func (f *failing) Take(ctx context.Context, asks []core.Ask) error {
	f.Lock()
	defer f.Unlock()
	if f.err != nil {
		return f.err
	}
	err := f.Store.Take(ctx, asks)
	asks[0].Decision.Mode = f.mode
	return err
}

// pageOf returns the page of a limiter on a store.
func pageOf(store core.Store, options *Options) (*limit.Limiter, *page) {
	limiter := limit.New(store, &limit.Options{Log: quiet})
	if options == nil {
		options = &Options{}
	}
	options.Authorize = func(*http.Request) (string, Role) { return "local", Operator }
	return limiter, Handler(limiter, options).(*page)
}

func bind(t testing.TB, limiter *limit.Limiter, set limit.RuleSet) *limit.Policy {
	t.Helper()
	policy := must.Get(limiter.Policy(set))(t)
	return policy
}

func take(t testing.TB, policy *limit.Policy, user string) {
	t.Helper()
	_, err := policy.Take(context.Background(), limit.Request{Keys: map[string]string{"user": user}})
	if err != nil {
		require.ErrorIs(t, err, limit.ErrUndecided)
	}
}

// viewOf returns the decoded view of a query, and its size.
func viewOf(t testing.TB, p *page, text string) (s state, size int) {
	t.Helper()
	values := must.Get(url.ParseQuery(text))(t)
	view := p.view(queryOf(values))
	require.NoError(t, json.Unmarshal(view, &s))
	return s, len(view)
}

// TestGivenBack refuses requests by an inner set. The outer policy counts them as admitted
// and given back, and is as full as without them.
func TestGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := limit.New(nil, &limit.Options{Log: quiet, Caller: limit.Caller[*http.Request]{User: func(r *http.Request) string { return r.URL.Path }}})
		p := Handler(limiter, &Options{Authorize: func(*http.Request) (string, Role) { return "local", Operator }}).(*page)
		outer := bind(t, limiter, limit.Named("outer", limit.PerUser(time.Hour, 10), limit.Global(time.Hour, 10)))
		h := outer.Handler(limiter.Limit(limit.Named("inner", limit.PerUser(time.Hour, 4)))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
		for range 10 {
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/ann", nil))
		}
		for range 2 { // is not the fullest key
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/bob", nil))
		}
		s, _ := viewOf(t, p, "sort=name&order=use&policy=outer")
		row := s.Policies.Rows[1]
		assert.Equal(t, policyRow{Name: "outer", Admitted: 12, GivenBack: 6, Full: 0.6, Spark: row.Spark, Rules: row.Rules}, row)
		assert.InDelta(t, 0.4, row.Rules[0].Full, 0.002)
		assert.InDelta(t, 0.6, row.Rules[1].Full, 0.002)
		assert.Equal(t, 0.4, s.Keys[0].Used)
		assert.EqualValues(t, 10, s.Keys[0].Requests)
		assert.EqualValues(t, 6, s.Policies.Rows[0].Refused)
		assert.Zero(t, s.Policies.Rows[0].GivenBack)
		assert.Equal(t, map[string]int64{"exact": 24}, s.ModeCounts)

		time.Sleep(slotSeconds * time.Second) // returns of a new slot lower nothing of the last one
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/ann", nil))
		s, _ = viewOf(t, p, "sort=name")
		assert.EqualValues(t, 7, s.Policies.Rows[1].GivenBack)
		assert.InDelta(t, 0.6, s.Policies.Rows[1].Full, 0.002)
		time.Sleep(shownSlots * slotSeconds * time.Second)
		s, _ = viewOf(t, p, "sort=name")
		assert.Zero(t, s.Policies.Rows[1].GivenBack)
	})
}

// TestQueries checks the search, the order and the pages of policies, and that all values
// of a query are bounded.
func TestQueries(t *testing.T) {
	limiter, p := pageOf(nil, nil)
	for i := range 7 {
		policy := bind(t, limiter, limit.Named(fmt.Sprintf("Policy-%d", i), limit.PerUser(time.Hour, 10)))
		for range 3 * i { // beyond 10: 2 refused on 4, 5 on 5, 8 on 6
			take(t, policy, "ann")
		}
	}
	names := func(text string) (names string, s state) {
		t.Helper()
		s, _ = viewOf(t, p, text)
		for _, row := range s.Policies.Rows {
			names += strings.TrimPrefix(row.Name, "Policy-")
		}
		return names, s
	}
	for text, want := range map[string]string{
		"": "6543210", "sort=name": "0123456", "sort=requests": "6543210", "sort=full": "4563210", "sort=nonsense": "6543210",
		"q=POLICY-3": "3", "q=nothing": "", "limit=2": "65", "limit=2&offset=4": "21", "offset=6": "0", "offset=100": "",
		"limit=0": "6", "limit=-1": "6", "limit=999999999999999999999": "6543210", "offset=-5": "6543210",
		"q=" + strings.Repeat("x", 100_000): "", "policy=" + strings.Repeat("x", 100_000): "6543210",
	} {
		got, s := names(text)
		assert.Equal(t, want, got, "%.100s", text)
		assert.Equal(t, 7, s.Policies.Total)
	}
	_, s := names("limit=2&q=policy")
	assert.Equal(t, 2, s.Policies.Next)
	assert.Equal(t, 7, s.Policies.Matching)
	_, s = names("limit=2&offset=5")
	assert.Zero(t, s.Policies.Next)

	_, s = names("")
	require.Len(t, s.Keys, 1, "one row for a client")
	assert.Equal(t, keyRow{Policy: "Policy-6", Rule: "per-user-1h", Key: "ann", Kind: "user", Per: "user", Requests: 18, Refused: 8, Used: 1,
		Remaining: 0, Capacity: 10, Last: s.Keys[0].Last, More: []ruleOf{{"Policy-5", "per-user-1h"}, {"Policy-4", "per-user-1h"}}}, s.Keys[0])
	_, s = names("order=use&policy=Policy-2")
	require.Len(t, s.Keys, 1)
	assert.Equal(t, 0.6, s.Keys[0].Used)
	_, s = names("policy=Policy-2")
	assert.Empty(t, s.Keys, "none is refused")
}

// TestWithoutRequest shows the rules of routes that have had no request, after the others.
func TestWithoutRequest(t *testing.T) {
	limiter, p := pageOf(nil, nil)
	take(t, bind(t, limiter, limit.Named("named", limit.PerUser(time.Hour, 10))), "ann")
	routes := http.NewServeMux()
	for _, pattern := range []string{"GET /a", "GET /b"} {
		routes.Handle(pattern, limiter.Limit(limit.Rules(limit.PerIP(time.Minute, 5)))(http.NotFoundHandler()))
	}
	rows := func() (list []string) {
		s, _ := viewOf(t, p, "sort=name")
		for _, row := range s.Policies.Rows {
			list = append(list, fmt.Sprintf("%s %d", row.Name, row.Idle))
		}
		return list
	}
	assert.Equal(t, []string{"named 0", "5/1m per ip 2"}, rows())
	routes.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/b", nil))
	p.states.outdated()
	assert.Equal(t, []string{"GET /b 0", "named 0", "5/1m per ip 1"}, rows())
	runtime.KeepAlive(routes)
}

// TestBansOfRules lists the clients that rules ban, until an operator lifts the ban.
func TestBansOfRules(t *testing.T) {
	limiter, p := pageOf(nil, nil)
	policy := bind(t, limiter, limit.Named("login", limit.PerUser(time.Minute, 2),
		limit.Rule{Name: "guesses", Key: limit.ByUser, Limit: 2, Window: time.Minute, Algorithm: limit.Ban{Bar: time.Hour}}))
	banned := func() []ban {
		p.states.outdated()
		s, _ := viewOf(t, p, "")
		assert.Equal(t, len(s.Bans), s.BansTotal)
		return s.Bans
	}
	for range 3 {
		take(t, policy, "mallory")
	}
	require.Empty(t, banned(), "refused, and not banned yet")
	for range 3 {
		take(t, policy, "mallory")
		take(t, policy, "eve")
	}
	list := banned()
	require.Len(t, list, 1)
	assert.WithinDuration(t, time.Now().Add(time.Hour), time.UnixMilli(list[0].Until), time.Minute)
	assert.Equal(t, ban{Policy: "login", Rule: "guesses", Key: "mallory", Until: list[0].Until}, list[0])
	must.Get(p.reset(t.Context(), viewer{}, &action{Policy: "login", Rule: "guesses", key: "mallory"}))(t)
	assert.Empty(t, banned(), "lifted")
	for range 3 {
		take(t, policy, "mallory")
	}
	assert.Len(t, banned(), 1, "banned again")
}

// askJSON sends a request with a body of JSON from this machine.
func askJSON(p *page, method, path, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.RemoteAddr, r.Host = "127.0.0.1:1", "localhost"
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	return w
}

// TestHideKeys checks that no key is in a state or an answer, and that ids serve to look
// at keys.
func TestHideKeys(t *testing.T) {
	limiter, p := pageOf(nil, &Options{HideKeys: true})
	policy := bind(t, limiter, limit.Named("api", limit.PerUser(time.Hour, 1)))
	for range 3 {
		take(t, policy, "secret-ann")
	}
	s, _ := viewOf(t, p, "")
	assert.NotContains(t, string(p.view(query{limit: 50, sort: "refused", order: "refusals"})), "secret-ann")
	id := s.Keys[0].ID
	assert.Regexp(t, "^[A-Z2-7]{12}$", id)
	assert.Equal(t, id, s.Refusals[0].Rules[0].ID)
	assert.Contains(t, s.Refusals[0].Words, id)

	send := func(method, path, body string) string {
		w := askJSON(p, method, path, body)
		assert.NotContains(t, w.Body.String(), "secret-ann")
		return w.Body.String()
	}
	look := "/peek?policy=api&rule=per-user-1h&id=" + id
	assert.Contains(t, send("GET", look, ""), `"remaining":0`)
	assert.Contains(t, send("POST", "/reset", `{"policy":"api","rule":"per-user-1h","id":"`+id+`"}`), "Reset "+id)
	assert.Contains(t, send("GET", look, ""), `"remaining":1`)

	// A guess does not tell whose an id is, and errors do not name the key of an id.
	for method, request := range map[string][2]string{
		"GET":  {"/peek?policy=api&rule=per-user-1h&key=secret-ann", ""},
		"POST": {"/reset", `{"policy":"api","rule":"per-user-1h","key":"secret-ann"}`},
	} {
		w := askJSON(p, method, request[0], request[1])
		assert.Equal(t, 200, w.Code)
		assert.NotContains(t, w.Body.String(), id)
	}
	bind(t, limiter, limit.Named("all", limit.Global(time.Hour, 1)))
	assert.Contains(t, send("POST", "/reset", `{"policy":"all","rule":"global-1h"}`), "Reset all requests")
	assert.Contains(t, send("POST", "/reset", `{"policy":"api","rule":"per-user-1h"}`), "Reset requests without a key")

	bind(t, limiter, limit.Named("joined", limit.MustParse("9/1h per ip and user").Rules()...))
	assert.Contains(t, send("POST", "/reset", `{"policy":"joined","rule":"per-ip-and-user-1h","key":"203.0.113.9, ann"}`), "Reset 203.0.113.9, ann of ")

	store := &failing{Store: memstore.New(nil)}
	limiter, p = pageOf(store, &Options{HideKeys: true})
	policy = bind(t, limiter, limit.Named("api", limit.PerUser(time.Hour, 1)))
	take(t, policy, "secret-ann")
	_, id = p.show(limit.Rule{}, "secret-ann")
	store.err = errors.New("limit:1:{api}:per-user-1h:secret-ann is of another type")
	look = "/peek?policy=api&rule=per-user-1h&id=" + id
	assert.Contains(t, send("GET", look, ""), "may name the hidden key")

	_, other := pageOf(nil, &Options{HideKeys: true})
	_, otherID := other.show(limit.Rule{}, "secret-ann")
	assert.NotEqual(t, id, otherID, "each process has a secret of its own")
}

// TestStrangeKeys checks that a key that is no text can be looked at by its id.
func TestStrangeKeys(t *testing.T) {
	limiter, p := pageOf(nil, nil)
	policy := bind(t, limiter, limit.Named("api", limit.PerUser(time.Hour, 1)))
	for range 2 {
		take(t, policy, "\xff\xfe")
	}
	s, _ := viewOf(t, p, "")
	assert.Equal(t, "\uFFFD", s.Keys[0].Key)
	key, ok := p.keyIDs.find(s.Keys[0].ID)
	assert.True(t, ok)
	assert.Equal(t, "\xff\xfe", key)
}
