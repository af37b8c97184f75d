package limit_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/operate"
	"github.com/routelimit/limit/rules"
	"github.com/routelimit/limit/stores/redisstore"
)

// ok answers 200.
var ok200 = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {})

func sent(h http.Handler, target string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", target, nil))
	return w
}

// left returns what a rule of a named policy has left for a key.
func left(t *testing.T, l *limit.Limiter, policy, rule, key string) int64 {
	t.Helper()
	r, err := operate.Peek(t.Context(), l, policy, rule, key, "")
	require.NoError(t, err)
	return r.Remaining
}

// TestRefusalCostsNothingOutside sends ten requests through an application's quota of 100
// to a route that admits three.
func TestRefusalCostsNothingOutside(t *testing.T) {
	for name, l := range map[string]*limit.Limiter{
		"memory": limit.New(nil, nil),
		"Redis":  limit.New(redisstore.New(redistest.Real(t), nil), nil),
	} {
		t.Run(name, func(t *testing.T) {
			application, err := l.Policy(limit.Named("app", limit.Global(time.Hour, 100)))
			require.NoError(t, err)
			h := application.Middleware(l.Limit(limit.Named("route", limit.Global(time.Hour, 3)))(ok200))
			codes := map[int]int{}
			var last *httptest.ResponseRecorder
			for range 10 {
				last = sent(h, "/")
				codes[last.Code]++
			}
			assert.Equal(t, map[int]int{200: 3, 429: 7}, codes)
			assert.EqualValues(t, 97, left(t, l, "app", "global-1h", ""))
			assert.Equal(t, []string{`"global-1h";r=97;t=3600`, `"global-1h";r=0;t=3600`}, last.Header()["Ratelimit"])
		})
	}
}

// A stack is random rule sets around one handler, and what each rule must have taken.
type stack struct {
	limiter *limit.Limiter
	handler http.Handler
	sets    [][]limit.Rule
	taken   map[string]int64 // by set, rule and key, of the rules that give back or count attempts
}

var clients = []string{"a", "b", "c"}

// newStack returns one to four sets. Their rules have small limits, so that each set
// refuses some requests.
func newStack(t *testing.T, l *limit.Limiter, r *rand.Rand, queues bool) *stack {
	s := &stack{limiter: l, handler: ok200, taken: make(map[string]int64)}
	algorithms := []rules.Algorithm{nil, limit.SlidingCells{Cells: 4}, limit.SlidingCounter{}, limit.FixedWindow{},
		limit.TokenBucket{}, limit.LeakyBucket{Burst: 7}}
	if queues {
		algorithms = append(algorithms, limit.Queue{MaxWait: time.Hour})
	}
	n := 1 + r.IntN(4)
	s.sets = make([][]limit.Rule, n)
	for i := n - 1; i >= 0; i-- { // the innermost first
		var list []limit.Rule
		for j := range 1 + r.IntN(3) {
			rule := limit.Rule{Name: fmt.Sprint("r", j), Key: limit.ByHeader("Client"), Limit: 2 + r.Int64N(12), Window: 24 * 366 * time.Hour,
				Algorithm: algorithms[r.IntN(len(algorithms))], Attempts: r.IntN(5) == 0}
			if r.IntN(3) == 0 {
				rule.Key = limit.Everyone
			}
			if r.IntN(6) == 0 {
				rule.Shadow = &limit.Shadow{}
			}
			list = append(list, rule)
		}
		s.sets[i] = list
		p, err := l.Policy(limit.Named(fmt.Sprint("set", i), list...))
		require.NoError(t, err)
		s.handler = p.Middleware(s.handler)
	}
	return s
}

func (s *stack) id(set, rule int, client string) string {
	if s.sets[set][rule].Key.String() == limit.Everyone.String() {
		client = ""
	}
	return fmt.Sprintf("set%d r%d %s", set, rule, client)
}

// request sends a request, and counts what it must have taken.
func (s *stack) request(t *testing.T, client string) (status int) {
	before := make(map[string]int64)
	for set, list := range s.sets {
		for i := range list {
			before[s.id(set, i, client)] = s.left(t, set, i, client)
		}
	}
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Client", client)
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	refusing := len(s.sets)
sets:
	for set, list := range s.sets {
		for i, rule := range list {
			if rule.Shadow == nil && before[s.id(set, i, client)] < 1 {
				refusing = set
				break sets
			}
		}
	}
	require.Equal(t, refusing == len(s.sets), w.Code == 200)
	for set, list := range s.sets {
		for i, rule := range list {
			id := s.id(set, i, client)
			counts := refusing == len(s.sets) || rule.Attempts && set < refusing
			if counts && before[id] > 0 {
				s.taken[id]++
			}
			if set == refusing && rule.Shadow != nil && before[id] > 0 {
				s.taken[id]++ // a shadow beside a refusal counts as it would alone
			}
		}
	}
	return w.Code
}

func (s *stack) left(t *testing.T, set, rule int, client string) int64 {
	if s.sets[set][rule].Key.String() == limit.Everyone.String() {
		client = ""
	}
	return left(t, s.limiter, fmt.Sprint("set", set), fmt.Sprint("r", rule), client)
}

// TestLayersTakeWhatTheyAdmit sends random requests through random layers. Each quota has
// lost exactly the requests that the handler has had, and attempts.
func TestLayersTakeWhatTheyAdmit(t *testing.T) {
	run := func(t *testing.T, store func() core.Store, stacks int, queues bool) {
		statuses := make(map[int]int)
		for seed := range stacks {
			r := rand.New(rand.NewPCG(22, uint64(seed)))
			s := newStack(t, limit.New(store(), nil), r, queues)
			for range 40 {
				statuses[s.request(t, clients[r.IntN(3)])]++
			}
			for set, list := range s.sets {
				for i, rule := range list {
					for _, client := range clients {
						q := rule.Quota()
						id := s.id(set, i, client)
						require.Equal(t, q.Capacity()-s.taken[id], s.left(t, set, i, client), "seed %d: %s: %s", seed, id, &rule)
					}
				}
			}
		}
		assert.Greater(t, statuses[200], 5*stacks)
		assert.Greater(t, statuses[429], 5*stacks)
	}
	t.Run("memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { run(t, func() core.Store { return nil }, 300, false) })
	})
	t.Run("Redis", func(t *testing.T) {
		client := redistest.Real(t)
		run(t, func() core.Store {
			require.NoError(t, client.FlushAll(t.Context()).Err())
			return redisstore.New(client, nil)
		}, 20, false)
	})
}
