package livepage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
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
	"github.com/routelimit/limit/memstore"
)

var quiet = slog.New(slog.DiscardHandler)

// A failing store makes decisions in a mode, or none.
type failing struct {
	core.Store
	mode core.Mode
	err  error
}

func (f *failing) Take(ctx context.Context, policy string, charges []core.Charge) (core.Decision, error) {
	if f.err != nil {
		return core.Decision{}, f.err
	}
	d, err := f.Store.Take(ctx, policy, charges)
	d.Mode = f.mode
	return d, err
}

// pageOf returns the page of a limiter on a store.
func pageOf(store core.Store, options *Options) (*limit.Limiter, *page) {
	limiter := limit.New(store, &limit.Options{Log: quiet})
	return limiter, Handler(limiter, options).(*page)
}

func bind(t testing.TB, limiter *limit.Limiter, set limit.RuleSet) *limit.Policy {
	t.Helper()
	policy, err := limiter.Policy(set)
	require.NoError(t, err)
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
	values, err := url.ParseQuery(text)
	require.NoError(t, err)
	view := p.view(queryOf(values))
	require.NoError(t, json.Unmarshal(view, &s))
	return s, len(view)
}

// TestTimes checks that counts are of the times that the state says, and end.
func TestTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, p := pageOf(nil, nil)
		policy := bind(t, limiter, limit.Named("api", limit.PerUser(time.Hour, 4)))
		begin := time.Now()
		for range 3 { // in the first second: 3 admitted
			take(t, policy, "ann")
		}
		time.Sleep(time.Second)
		for range 3 { // in the second one: 1 admitted, 2 refused
			take(t, policy, "ann")
		}
		time.Sleep(time.Second)
		s, _ := viewOf(t, p, "")
		assert.Equal(t, begin.Unix()+2-120, s.Seconds.From)
		assert.Equal(t, []uint64{0, 3, 1}, s.Seconds.Admitted[117:])
		assert.Equal(t, []uint64{0, 0, 2}, s.Seconds.Refused[117:])
		assert.Equal(t, rates{0.8, 0.4}, s.Now)
		assert.Equal(t, map[string]int64{"exact": 6}, s.ModeCounts)
		row := s.Policies.Rows[0]
		assert.Equal(t, policyRow{Name: "api", Admitted: 4, Refused: 2, Full: 1, Spark: row.Spark, Rules: []ruleRow{
			{Name: "per-user-1h", Text: "4/1h per user", Limit: 4, Admitted: 4, Refused: 2, Full: 1, Keyed: true, Kind: "user"}}}, row)
		assert.Equal(t, [2]uint32{4, 2}, row.Spark[29])
		assert.Len(t, row.Spark, 30)

		time.Sleep(8 * time.Second) // the share is of 5 to 10 seconds
		s, _ = viewOf(t, p, "")
		assert.Zero(t, s.Policies.Rows[0].Full)
		assert.Zero(t, s.Now)
		assert.Equal(t, [2]uint32{4, 2}, s.Policies.Rows[0].Spark[28])
		time.Sleep(111 * time.Second)
		s, _ = viewOf(t, p, "")
		assert.Equal(t, uint64(1), s.Seconds.Admitted[0])
		time.Sleep(time.Second)
		s, _ = viewOf(t, p, "")
		assert.Equal(t, make([]uint64, 120), s.Seconds.Admitted)

		time.Sleep(299*time.Second - time.Since(begin))
		s, _ = viewOf(t, p, "")
		assert.Equal(t, [2]uint32{4, 2}, s.Policies.Rows[0].Spark[0])
		assert.Equal(t, int64(4), s.Policies.Rows[0].Admitted)
		time.Sleep(time.Second)
		s, _ = viewOf(t, p, "")
		assert.Equal(t, make([][2]uint32, 30), s.Policies.Rows[0].Spark)
		assert.Zero(t, s.Policies.Rows[0].Admitted)
		assert.Zero(t, s.Policies.Rows[0].Rules[0].Refused)
		assert.Empty(t, s.ModeCounts)
		assert.Equal(t, int64(2), s.Refusals.Last, "the log does not end by itself")
		assert.Equal(t, begin.Add(time.Second).UnixMilli(), s.Refusals.Rows[0].At)

		time.Sleep(2 * time.Hour) // each ring has gone around
		take(t, policy, "bob")
		time.Sleep(time.Second)
		s, _ = viewOf(t, p, "")
		assert.Equal(t, uint64(1), s.Seconds.Admitted[119])
		assert.Equal(t, int64(1), s.Policies.Rows[0].Admitted)
	})
}

// TestModes checks the timeline of an outage, and what it says when there are no decisions.
func TestModes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &failing{Store: memstore.New(nil)}
		limiter, p := pageOf(store, nil)
		policy := bind(t, limiter, limit.Named("api", limit.PerUser(time.Second, 100)))
		begin := time.Now().Unix()
		s, _ := viewOf(t, p, "")
		assert.Empty(t, s.Modes)
		for second := range 100 {
			switch {
			case second >= 60 && second < 80:
				time.Sleep(time.Second)
				continue // no decisions
			case second >= 20 && second < 40 && second%10 == 5:
				store.mode = core.ModeLocal // one decision of 10: the worst counts
			case second == 95:
				store.mode, store.err = core.ModeExact, fmt.Errorf("broken: %w", core.ErrUnavailable)
			default:
				store.mode, store.err = core.ModeExact, nil
			}
			take(t, policy, "ann")
			time.Sleep(time.Second)
		}
		// The breaker answers for the failed store.
		s, _ = viewOf(t, p, "")
		require.Len(t, s.Modes, 5, "%+v", s.Modes)
		assert.Equal(t, []period{{"exact", begin, begin + 20}, {"local", begin + 20, begin + 40}, {"exact", begin + 40, begin + 60},
			{"exact", begin + 80, begin + 90}}, s.Modes[:4])
		assert.Equal(t, int64(2+1), s.ModeCounts["local"])
		time.Sleep(time.Hour)
		s, _ = viewOf(t, p, "")
		assert.Empty(t, s.Modes)
	})
}

// TestUndecided checks that a request that was not decided is seen, and counted once.
func TestUndecided(t *testing.T) {
	limiter, p := pageOf(&failing{Store: memstore.New(nil), err: fmt.Errorf("a mistake")}, nil)
	take(t, bind(t, limiter, limit.Named("api", limit.PerUser(time.Second, 100))), "ann")
	s, _ := viewOf(t, p, "")
	assert.Equal(t, map[string]int64{"undecided": 1}, s.ModeCounts)
	require.Len(t, s.Modes, 1)
	assert.Equal(t, "undecided", s.Modes[0].Mode)
}

// TestFullInOutage checks that rules are not shown as full, or as unused, by requests that
// were refused or admitted since the store is unavailable.
func TestFullInOutage(t *testing.T) {
	for _, on := range []core.OnError{limit.Refuse, limit.Allow} {
		store := &failing{Store: memstore.New(nil)}
		limiter, p := pageOf(store, nil)
		policy := bind(t, limiter, limit.Named("api", limit.Rule{Key: limit.ByUser, Limit: 4, Window: time.Hour, OnStoreError: on}))
		take(t, policy, "ann")
		store.err = fmt.Errorf("broken: %w", core.ErrUnavailable)
		take(t, policy, "ann")
		s, _ := viewOf(t, p, "")
		assert.Equal(t, []float32{0.25, 0.25}, []float32{s.Policies.Rows[0].Full, s.Policies.Rows[0].Rules[0].Full})
		assert.Equal(t, int64(2), s.Policies.Rows[0].Rules[0].Admitted+s.Policies.Rows[0].Rules[0].Refused)
	}
}

// TestPeekInOutage checks that the page does not show the counts of one instance as those
// of all.
func TestPeekInOutage(t *testing.T) {
	store := &failing{Store: memstore.New(nil)}
	limiter, p := pageOf(store, nil)
	policy := bind(t, limiter, limit.Named("api", limit.PerUser(time.Hour, 4)))
	look := func() string {
		r := httptest.NewRequest("GET", "/peek?policy=api&rule=per-user-1h&key=ann", nil)
		r.RemoteAddr, r.Host = "127.0.0.1:1", "localhost"
		w := httptest.NewRecorder()
		p.ServeHTTP(w, r)
		assert.Equal(t, 200, w.Code)
		return w.Body.String()
	}
	take(t, policy, "ann")
	assert.NotContains(t, look(), "unavailable")
	store.err = fmt.Errorf("broken: %w", core.ErrUnavailable)
	for !limiter.Stats().Unavailable {
		take(t, policy, "bob") // until the breaker opens
	}
	assert.Contains(t, look(), "The store is unavailable, and this is what this instance alone decides. 3 of 4 left.")
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
	require.Len(t, s.Keys.Rows, 3)
	assert.Equal(t, keyRow{Policy: "Policy-6", Rule: "per-user-1h", Key: "ann", Kind: "user", Requests: 18, Refused: 8, Used: 1, Limit: 10,
		Remaining: 0, Capacity: 10, Last: s.Keys.Rows[0].Last}, s.Keys.Rows[0])
	_, s = names("order=use&policy=Policy-2")
	require.Len(t, s.Keys.Rows, 1)
	assert.Equal(t, 0.6, s.Keys.Rows[0].Used)
	_, s = names("policy=Policy-2")
	assert.Empty(t, s.Keys.Rows, "none is refused")
}

// TestShared checks that viewers share a state, and that many different queries do not
// grow what is kept.
func TestShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, p := pageOf(nil, nil)
		policy := bind(t, limiter, limit.Named("api", limit.PerUser(time.Hour, 10)))
		first := p.view(query{})
		take(t, policy, "ann")
		assert.Same(t, &first[0], &p.view(query{})[0])
		for i := range 1000 {
			p.view(query{offset: i})
		}
		assert.Len(t, p.states.views, 2*maxViewers)
		time.Sleep(time.Second)
		assert.NotEqual(t, string(first), string(p.view(query{})))
		assert.Len(t, p.states.views, 1)
	})
}

// hostile are keys that a client may choose.
func hostile() (list []string) {
	for i := range 300 {
		list = append(list, fmt.Sprintf("%s%d", []string{strings.Repeat("\x00", 120), "\xff\xfe" + strings.Repeat("\x1b", 100),
			"<script>alert(1)</script>", strings.Repeat("\u202e", 40), "\n\ndata: {}\n\n", `"}]}`}[i%6], i))
	}
	return list
}

// TestSize checks that a state with 1,000 policies, full lists and the worst keys has at
// most 64 kB, and is one line.
func TestSize(t *testing.T) {
	limiter, p := pageOf(nil, nil)
	keys := hostile()
	for i := range 1000 {
		policy := bind(t, limiter, limit.Named(fmt.Sprintf("policy-with-a-rather-long-name-%d", i),
			limit.PerUser(time.Hour, 1), limit.Concurrent(limit.ByUser, 9000), limit.PerUser(time.Minute, 90_000)))
		for range 100 {
			take(t, policy, keys[rand.IntN(len(keys))])
		}
	}
	// The largest counts: those of a busy year would have as many digits.
	for i := range p.collector.shards {
		shard := &p.collector.shards[i]
		for _, policy := range shard.policies {
			for j := range policy.counts {
				policy.counts[j] = count{1, 4_000_000_000, 4_000_000_000}
			}
		}
	}
	largest := 0
	for _, text := range []string{"", "limit=100", "sort=full&order=use&limit=100", "policy=policy-with-a-rather-long-name-7"} {
		s, size := viewOf(t, p, text)
		largest = max(largest, size)
		assert.Equal(t, 1000, s.Policies.Total)
		assert.GreaterOrEqual(t, len(s.Policies.Rows), 20)
		assert.NotEmpty(t, s.Keys.Rows)
		assert.GreaterOrEqual(t, len(s.Refusals.Rows), 3) // of those with the longest keys
		values, _ := url.ParseQuery(text)
		assert.NotContains(t, string(p.view(queryOf(values))), "\n")
	}
	assert.LessOrEqual(t, largest, stateBytes-2000, "the part of the viewer is added")
	t.Logf("the largest state has %d bytes", largest)

	// After an hour in which the mode changed every 10 seconds, some rows are on the next page.
	p.collector.start = p.collector.start.Add(-7 * 24 * time.Hour)
	hour, slot := &p.collector.shards[0].hour, p.collector.now().slot
	for i := range uint32(shownHour) {
		hour[(slot-i)%keptHour] = modeMask{slot - i, 1 << (2 + i%2)}
	}
	for i := range p.collector.shards {
		for _, policy := range p.collector.shards[i].policies {
			for j := range policy.counts {
				policy.counts[j] = count{slot - uint32(j), 4_000_000_000, 4_000_000_000}
			}
		}
	}
	s, size := viewOf(t, p, "limit=100")
	assert.Len(t, s.Modes, shownHour)
	assert.LessOrEqual(t, size, stateBytes-2000)
	assert.Positive(t, s.Policies.Next)
	assert.Len(t, s.Policies.Rows, s.Policies.Next)
	t.Logf("with all modes, it has %d bytes and %d policies", size, len(s.Policies.Rows))

	// An everyday one has what was asked for.
	limiter, p = pageOf(nil, nil)
	for i := range 1000 {
		policy := bind(t, limiter, limit.Named(fmt.Sprintf("GET.api.v1.things.%d", i), limit.PerUser(time.Hour, 1), limit.PerUser(time.Minute, 1000)))
		for j := range 60 {
			take(t, policy, fmt.Sprintf("203.0.113.%d", j/2))
		}
	}
	s, size = viewOf(t, p, "")
	assert.LessOrEqual(t, size, stateBytes-2000)
	assert.Len(t, s.Policies.Rows, 50)
	assert.Len(t, s.Keys.Rows, 20)
	assert.GreaterOrEqual(t, len(s.Refusals.Rows), 30)
	t.Logf("a usual state has %d bytes, with %d refusals", size, len(s.Refusals.Rows))
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
	id := s.Keys.Rows[0].ID
	assert.Regexp(t, "^[a-z2-7]{16}$", id)
	assert.Equal(t, id, s.Refusals.Rows[0].Rules[0].ID)
	assert.Contains(t, s.Refusals.Rows[0].Words, id)

	send := func(method, path, body string) string {
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		r.RemoteAddr, r.Host = "127.0.0.1:1", "localhost"
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		p.ServeHTTP(w, r)
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
		r := httptest.NewRequest(method, request[0], strings.NewReader(request[1]))
		r.RemoteAddr, r.Host = "127.0.0.1:1", "localhost"
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		p.ServeHTTP(w, r)
		assert.Equal(t, 200, w.Code)
		assert.NotContains(t, w.Body.String(), id)
	}
	bind(t, limiter, limit.Named("all", limit.Global(time.Hour, 1)))
	assert.Contains(t, send("POST", "/reset", `{"policy":"all","rule":"global-1h"}`), "Reset all requests")
	assert.Contains(t, send("POST", "/reset", `{"policy":"api","rule":"per-user-1h"}`), "Reset requests without a key")

	store := &failing{Store: memstore.New(nil)}
	limiter, p = pageOf(store, &Options{HideKeys: true})
	policy = bind(t, limiter, limit.Named("api", limit.PerUser(time.Hour, 1)))
	take(t, policy, "secret-ann")
	_, id = p.show("secret-ann")
	store.err = errors.New("limit:1:{api}:per-user-1h:secret-ann is of another type")
	look = "/peek?policy=api&rule=per-user-1h&id=" + id
	assert.Contains(t, send("GET", look, ""), "may name the hidden key")

	_, other := pageOf(nil, &Options{HideKeys: true})
	_, otherID := other.show("secret-ann")
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
	assert.Equal(t, "\uFFFD", s.Keys.Rows[0].Key)
	key, ok := p.find(s.Keys.Rows[0].ID)
	assert.True(t, ok)
	assert.Equal(t, "\xff\xfe", key)
}

// TestBounds checks that further policies and rules are not listed, and take no memory.
func TestBounds(t *testing.T) {
	c := newCollector()
	c.policies.Store(maxPolicies - 1)
	c.rules.Store(maxRules - 1)
	limiter := limit.New(nil, &limit.Options{Log: quiet})
	limiter.Observe(c.observe)
	for i := range 3 {
		take(t, bind(t, limiter, limit.Named(fmt.Sprintf("api-%d", i), limit.PerUser(time.Hour, 1), limit.PerUser(time.Minute, 1))), "ann")
	}
	tt := &totals{now: c.now(), start: time.Now()}
	c.total(tt)
	assert.Len(t, tt.rows, 1)
	assert.Equal(t, int64(2), tt.state.Policies.Unlisted)
	assert.Equal(t, map[string]int64{"exact": 3}, tt.state.ModeCounts)
	rules := 0
	for i := range c.shards {
		for _, p := range c.shards[i].policies {
			rules += len(p.rules)
		}
	}
	assert.Equal(t, 1, rules)
}

// measured is a variable of the package, so that the collector lives until it is dropped.
var measured *collector

// TestMemory measures what policies and rules take, and that keys take no more than the
// bound of package topkeys.
func TestMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("counts bytes")
	}
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	freed := func(drop func()) int64 { // by drop
		before := heap()
		drop()
		return before - heap()
	}
	list := decisions(t, 1000, 1000, true)
	measured = newCollector()
	empty := freed(func() { measured = nil })
	measured = newCollector()
	for i := range list {
		measured.observe(nil, list[i], nil)
	}
	keys := freed(func() { measured.top = nil }) / 1000
	counts := (freed(func() { measured = nil }) - empty) / 1000
	runtime.KeepAlive(list)
	t.Logf("%d bytes without policies; for each policy with two rules, %d of counts, and %d of one key and a global one", empty, counts, keys)
	assert.Less(t, empty, int64(512<<10))
	assert.Less(t, counts, int64(2<<10))
	assert.Less(t, keys, int64(4<<10))

	limiter, p := pageOf(nil, nil)
	policy := bind(t, limiter, limit.Named("api", limit.PerUser(time.Hour, 1)))
	for i := range 100_000 {
		take(t, policy, fmt.Sprint("user-", i))
		take(t, policy, fmt.Sprint("user-", i))
	}
	measured = p.collector
	many := freed(func() { measured, *p.collector = nil, collector{} })
	runtime.KeepAlive(limiter)
	t.Logf("%d bytes after 100,000 keys of one rule", many)
	assert.Less(t, many, int64(512<<10))
}

// TestRace observes decisions, and makes states of them, at the same time.
func TestRace(t *testing.T) {
	limiter, p := pageOf(nil, nil)
	stop := make(chan struct{})
	var all sync.WaitGroup
	for i := range 4 {
		policy := bind(t, limiter, limit.Named(fmt.Sprintf("api-%d", i), limit.PerUser(time.Hour, 3)))
		all.Go(func() {
			for j := 0; ; j++ {
				select {
				case <-stop:
					return
				default:
					take(t, policy, fmt.Sprint(j%50))
				}
			}
		})
	}
	for i := range 100 {
		p.states.second = 0 // so that each state is new
		p.view(query{limit: 50, offset: i % 3, order: "use"})
		p.find("none")
	}
	close(stop)
	all.Wait()
}

// TestRefusals checks the words of refusals.
func TestRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := limit.New(nil, &limit.Options{Log: quiet, User: func(r *http.Request) string { return r.URL.Query().Get("user") },
			Bar: func(r *http.Request) time.Duration {
				if r.URL.Query().Get("user") == "mallory" {
					return 90 * time.Second
				}
				return 0
			}})
		p := Handler(limiter, nil).(*page)
		mux := http.NewServeMux()
		for path, rules := range map[string][]limit.Rule{
			"POST /login":   {limit.PerUser(time.Minute, 2), limit.PerUser(time.Hour, 2)},
			"/any":          {{Key: limit.Everyone, Limit: 1, Window: 90 * time.Second}},
			"GET /values":   {{Key: limit.ByUser, Limit: 1, Window: time.Hour, Algorithm: limit.Distinct, Values: limit.ByQuery("v")}},
			"GET /barring":  {{Key: limit.ByUser, Limit: 1, Window: time.Hour, Algorithm: limit.Ban, Bar: time.Minute}, limit.PerUser(time.Second, 1)},
			"GET /shadowed": {{Name: "s", Key: limit.ByUser, Limit: 1, Window: time.Hour, Shadow: true}, {Name: "e", Key: limit.ByUser, Limit: 1, Window: time.Minute}},
		} {
			mux.Handle(path, limiter.Limit(limit.Rules(rules...))(http.NotFoundHandler()))
		}
		words := func(method, target string) refusalRow {
			t.Helper()
			mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(method, target, nil))
			mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(method, target+"2", nil))
			mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(method, target, nil))
			mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(method, target, nil))
			time.Sleep(time.Second)
			s, _ := viewOf(t, p, "")
			require.NotEmpty(t, s.Refusals.Rows)
			return s.Refusals.Rows[0]
		}
		row := words("POST", "/login?user=ann")
		assert.Equal(t, "per-user-1m allows 2 in 1 min for ann, and has room again in 1 min. per-user-1h allows 2 in 1 h for ann, and has room again in 1 h.", row.Words)
		assert.Equal(t, []refusedKey{{Name: "per-user-1m", Key: "ann"}, {Name: "per-user-1h", Key: "ann"}}, row.Rules)
		assert.Equal(t, int64(3_600_000), row.RetryAfter)
		row = words(strings.Repeat("LONG", 1000), "/any?user=ann")
		assert.Equal(t, "global-1m30s allows 1 in 1 min 30 s, and has room again in 1 min 30 s.", row.Words)
		assert.Equal(t, "other", row.Method)
		row = words("GET", "/shadowed?user=ann")
		assert.Equal(t, "e allows 1 in 1 min for ann, and has room again in 1 min.", row.Words)
		row = words("GET", "/login?user=mallory")
		assert.NotEqual(t, "barred", row.Mode, "no route has this method")
		mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/login?user=mallory", nil))
		time.Sleep(time.Second)
		s, _ := viewOf(t, p, "")
		assert.Equal(t, "The client is barred for another 1 min 30 s.", s.Refusals.Rows[0].Words)
		assert.Equal(t, "barred", s.Refusals.Rows[0].Mode)
		row = words("GET", "/barring?user=ann")
		assert.Contains(t, row.Words, "per-user-ban bars requests for ann for another 1 min.")
	})
}

// TestInWords checks durations in words.
func TestInWords(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0 ms", time.Microsecond: "1 ms", 999 * time.Millisecond: "999 ms", time.Second: "1 s", 1001 * time.Millisecond: "2 s",
		59*time.Second + 1: "1 min", 65 * time.Second: "1 min 5 s", time.Hour - 1: "1 h", time.Hour + time.Second: "1 h 1 min",
		24*time.Hour - 1: "1 d", 49 * time.Hour: "2 d 1 h", 365 * 24 * time.Hour: "365 d",
	} {
		assert.Equal(t, want, inWords(d), d.String())
	}
}
