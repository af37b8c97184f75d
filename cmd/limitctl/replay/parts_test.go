package replay

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/cmd/limitctl/replay/accesslog"
	"github.com/routelimit/limit/internal/must"
)

// TestQueue checks that a queue sorts like a stable sort, as long as no event is later
// than its bound.
func TestQueue(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		late := 1 + rnd.IntN(50)
		var sent, got []event
		q := queue{late: late, decide: func(e *event) { got = append(got, *e) }}
		for i := range 500 {
			e := event{time: int64(i * 10), route: i}
			if rnd.IntN(3) == 0 {
				e.time -= rnd.Int64N(int64(late)) * 10
			}
			sent = append(sent, e)
			q.add(&e)
		}
		q.end()
		slices.SortStableFunc(sent, func(a, b event) int { return cmp.Compare(a.time, b.time) })
		require.Equal(t, sent, got)
	}
}

// TestTop checks the bounds of the counts.
func TestTop(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	top, exact := newTop(5), make(map[string]int64)
	top.size = 50
	for range 20_000 {
		key := fmt.Sprint(int(rnd.ExpFloat64() * 4))
		if rnd.IntN(3) == 0 {
			key = fmt.Sprint("rare ", rnd.IntN(1_000_000))
		}
		top.add(key)
		exact[key]++
	}
	assert.LessOrEqual(t, len(top.counts), 100)
	assert.LessOrEqual(t, top.floor, int64(20_000/50))
	for _, k := range top.list(10) {
		assert.LessOrEqual(t, exact[k.Key], k.Refused)
		assert.GreaterOrEqual(t, exact[k.Key], k.Refused-k.Error)
	}
	assert.Equal(t, "0", top.list(1)[0].Key)
}

// TestBuckets checks that buckets keep every request as they become longer.
func TestBuckets(t *testing.T) {
	b := newBuckets()
	b.add(-5e15, false) // one wrong time
	for i := range int64(100_000) {
		b.add(1_700_000_000*second+i*second, i%10 == 0)
	}
	b.add(9e15, false)
	width, list := b.list()
	assert.EqualValues(t, "5m0s", width.String())
	assert.LessOrEqual(t, len(list), maxBuckets)
	requests, refused := int64(0), int64(0)
	for _, s := range list {
		requests += s.Requests
		refused += s.Refused
	}
	assert.EqualValues(t, 100_002, requests)
	assert.EqualValues(t, 10_000, refused)
}

func TestGuess(t *testing.T) {
	for path, want := range map[string]string{
		"/users/12":                               "GET /users/{id}",
		"/users/alice/posts/7/":                   "GET /users/alice/posts/{id}/{$}",
		"/users/12/posts/7":                       "GET /users/{id}/posts/{id2}",
		"/a/6f1c2e9a-77aa-4a0b-b3a1-0a1b2c3d4e5f": "GET /a/{id}",
		"/a/d41d8cd98f00b204":                     "GET /a/{id}",
		"/facade/deadbeef":                        "GET /facade/deadbeef",
		"/":                                       "GET /{$}",
	} {
		p := newPlaces(nil)
		at := p.of(&accesslog.Record{Method: "GET", Path: path, Status: 200})
		assert.Equal(t, want, p.routes[at.route], path)
	}
	p := newPlaces(nil)
	missing := &accesslog.Record{Method: "GET", Path: "/x", Status: 404}
	assert.Equal(t, otherRoutes, p.routes[p.of(missing).route], "attackers try many paths")
	missing.Status = 200
	assert.Equal(t, "GET /x", p.routes[p.of(missing).route])
	for range 2 {
		invalid := &accesslog.Record{Method: "GET", Path: "/100%", Status: 200}
		assert.Equal(t, otherRoutes, p.routes[p.of(invalid).route], "no server routes it")
	}
}

// TestFlood checks that every bound holds against a log in which everything is new.
func TestFlood(t *testing.T) {
	var hits []hit
	for i := range 3000 {
		hits = append(hits, hit{at: float64(i) / 100, ip: fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255), user: fmt.Sprint("user", i),
			request: fmt.Sprintf("GET /p%dx/y", i), agent: fmt.Sprint("agent ", i)})
	}
	run := must.Get(newRun(&Options{maxClients: 100, maxSeries: 512, MaxKeys: 256, Reorder: 50, Policies: []Policy{{Rules: limit.MustParse("1/1m per ip; 1/1m per user")}}}))(t)
	log := logOf(hits)
	require.NoError(t, run.read(t.Context(), log))
	assert.Len(t, run.clients, 100)
	assert.NotEmpty(t, run.texts)
	long := strings.Repeat("u", maxText+1)
	assert.Equal(t, long, run.kept(long))
	assert.NotContains(t, run.texts, long, "it may be as long as a line")
	assert.LessOrEqual(t, run.suggest.size, 512)
	assert.Len(t, run.places.routes, maxGuessed)
	result := run.report(log)
	assert.EqualValues(t, 3000, result.Requests)
	assert.EqualValues(t, 2900, result.Untracked)
	assert.Positive(t, result.Overflow)
	clients := int64(0)
	for _, s := range result.Suggestions {
		if s.Key == "ip" && s.Route == "" {
			clients += s.Clients
		}
	}
	assert.InEpsilon(t, 3000, clients, 0.4, "an estimate from a sample")
}
