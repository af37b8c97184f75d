package limit_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/race"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/rules"
	"github.com/routelimit/limit/stores/memstore"
	"github.com/routelimit/limit/stores/redisstore"
)

// A faulty store is unavailable while it is down.
type faulty struct {
	core.Store
	down atomic.Bool
}

func (s *faulty) Take(ctx context.Context, asks []core.Ask) error {
	if s.down.Load() {
		return core.ErrUnavailable
	}
	return s.Store.Take(ctx, asks)
}

func (s *faulty) Return(ctx context.Context, returns []core.Return) ([]core.Returned, error) {
	if s.down.Load() {
		return nil, core.ErrUnavailable
	}
	return s.Store.Return(ctx, returns)
}

func (s *faulty) Release(ctx context.Context, charges []core.Charge) error {
	if s.down.Load() {
		return core.ErrUnavailable
	}
	return s.Store.Release(ctx, charges)
}

// A stack is random rule sets around one handler, and what each quota must have lost in the
// store.
type stack struct {
	store   *faulty
	handler http.Handler
	sets    []limit.RuleSet
	base    limit.RuleSet // that some of the sets are With
	random  *rand.Rand
	outages bool // whether the store fails between requests, and between sets
	failed  int  // requests of which it gave nothing back
	seen    []limit.Decision
	unpaid  map[string]bool // sets of the last request that could not give back or settle
	taken   map[quota]int64
	values  map[quota]map[string]bool
}

// A quota is that of a rule of a policy, for a key.
type quota struct{ policy, rule, key string }

var clients = []string{"a", "b", "c"}

// endless is a window that does not end in a test.
const endless = 24 * 366 * time.Hour

// someRule returns a rule with a small limit, so that each set refuses some requests.
func (s *stack) someRule(name string) limit.Rule {
	r := s.random
	algorithms := []rules.Algorithm{nil, limit.SlidingCells{Cells: 4}, limit.SlidingCounter{}, limit.FixedWindow{}, limit.TokenBucket{},
		limit.LeakyBucket{Burst: 7}, limit.Distinct{Values: limit.ByHeader("Value")}, limit.Ban{Bar: time.Hour}, limit.Concurrency{}}
	rule := limit.Rule{Name: name, Key: limit.ByHeader("Client"), Limit: 2 + r.Int64N(12), Window: endless,
		Algorithm: algorithms[r.IntN(len(algorithms))], Attempts: r.IntN(5) == 0}
	if r.IntN(3) == 0 {
		rule.Key = limit.Everyone
	}
	switch rule.Algorithm.(type) {
	case limit.Ban:
		rule.Limit, rule.Attempts = 500, false // strikes, and no bar
	case limit.Concurrency:
		rule.Window, rule.Attempts = 30*time.Second, false
	case limit.Distinct:
	default:
		switch r.IntN(6) {
		case 0:
			if !s.outages {
				rule.Shadow = &rules.Shadow{}
			}
		case 1:
			rule.Attempts, rule.Settle = false, rules.OnStatus([]int{200, 429}[r.IntN(2)])
		}
	}
	return rule
}

func (s *stack) someRules(prefix string, n int) (list []limit.Rule) {
	for i := range n {
		list = append(list, s.someRule(fmt.Sprint(prefix, i)))
	}
	return append(list, limit.Rule{Name: prefix + "last", Key: limit.Everyone, Limit: 60, Window: endless})
}

// newStack returns one to four sets.
func newStack(t *testing.T, store core.Store, random *rand.Rand, outages bool) *stack {
	s := &stack{store: &faulty{Store: store}, random: random, outages: outages, handler: ok200,
		taken: make(map[quota]int64), values: make(map[quota]map[string]bool)}
	l := limit.New(s.store, &limit.Options{Log: slog.New(slog.DiscardHandler), Observe: s.observe})
	s.base = limit.Named("base", s.someRules("b", 1)...)
	alone := random.IntN(8) // where base is a set of its own, if it is
	for i := range 1 + random.IntN(4) {
		if i == alone {
			s.sets = append(s.sets, s.base)
			continue
		}
		set := limit.Named(fmt.Sprint("set", i), s.someRules("r", 1+random.IntN(2))...)
		if random.IntN(3) == 0 {
			set = set.With(s.base)
		}
		s.sets = append(s.sets, set)
	}
	for _, set := range slices.Backward(s.sets) {
		s.handler = s.between(bound(t, l, set).Handler(s.handler))
	}
	return s
}

// observe remembers the decisions about a request, and which sets could not be paid back.
func (s *stack) observe(_ *http.Request, d limit.Decision, err error) {
	switch {
	case err != nil:
		s.unpaid[d.Policy] = true
	case !d.GivenBack:
		s.seen = append(s.seen, d)
	}
}

// between has the store fail, or work again, before the next set.
func (s *stack) between(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.outages && s.random.IntN(10) == 0 {
			s.store.down.Store(!s.store.down.Load())
		}
		next.ServeHTTP(w, r)
	})
}

// quotaOf returns the quota of a rule of a set. Rules of base have names of their own.
func (s *stack) quotaOf(set int, rule *limit.Rule, client string) quota {
	if rule.Key.String() == limit.Everyone.String() {
		client = ""
	}
	if rule.Name[0] == 'b' {
		return quota{"base", rule.Name, client}
	}
	return quota{s.sets[set].Name(), rule.Name, client}
}

// rulesOf returns the rules of a set, and of base.
func (s *stack) rulesOf(set int) []limit.Rule {
	list := slices.Clone(s.sets[set].Declared())
	if len(s.sets[set].Others()) > 0 {
		list = append(list, s.base.Declared()...)
	}
	return list
}

// hasRoom reports whether a rule that refuses has room for a request.
func (s *stack) hasRoom(rule *limit.Rule, of quota, value string) bool {
	q := rule.Quota()
	return rule.Shadow != nil || q.Bars() || q.Leases() || s.values[of][value] || s.taken[of] < q.Capacity()
}

// request sends a request, and counts what it must have taken.
func (s *stack) request(t *testing.T, client string) (status int) {
	r := httptest.NewRequest("GET", "/", nil)
	value := fmt.Sprint(s.random.IntN(20))
	r.Header.Set("Client", client)
	r.Header.Set("Value", value)
	w := httptest.NewRecorder()
	s.seen, s.unpaid = nil, make(map[string]bool)
	s.handler.ServeHTTP(w, r)
	charged := make(map[quota]bool)
	for set, d := range s.seen {
		fits := true
		for _, rule := range s.rulesOf(set) {
			of := s.quotaOf(set, &rule, client)
			q := rule.Quota()
			if charged[of] {
				continue
			}
			charged[of] = true
			fits = fits && s.hasRoom(&rule, of, value)
			shadow := rule.Shadow != nil && s.taken[of] < q.Capacity()
			stays := w.Code == 200 || rule.Attempts || s.unpaid[d.Policy]
			if rule.Settle != (rules.Settlement{}) {
				stays = rule.Settle.Units(r, w.Code) == rules.AsCharged || s.unpaid[d.Policy]
			}
			switch {
			case d.Mode >= core.ModeLocal, q.Leases(): // the store has nothing of it
			case q.Bars():
				if !d.Allowed {
					s.taken[of]++ // a strike
				}
			case rule.Shadow != nil && !shadow:
			case !d.Allowed:
				if shadow {
					s.taken[of]++ // a shadow beside a refusal counts as it would alone
				}
			case q.Algorithm == core.Distinct && stays:
				if !s.values[of][value] {
					s.taken[of]++
				}
				if s.values[of] == nil {
					s.values[of] = make(map[string]bool)
				}
				s.values[of][value] = true
			case q.Algorithm != core.Distinct && stays:
				s.taken[of]++
			}
		}
		if !s.outages {
			require.Equal(t, fits, d.Allowed)
		}
	}
	last := s.seen[len(s.seen)-1]
	require.Equal(t, last.Allowed, w.Code == 200)
	if len(s.unpaid) > 0 {
		s.failed++
	}
	return w.Code
}

// TestLayersTakeWhatTheyAdmit sends random requests through random layers. Each quota has
// lost exactly the requests that the handler has had, attempts, what was settled, and
// strikes. If the store fails in between, a quota also keeps what could not be given back.
func TestLayersTakeWhatTheyAdmit(t *testing.T) {
	run := func(t *testing.T, store func() core.Store, stacks int, outages bool) {
		statuses, failed, local := make(map[int]int), 0, 0
		for seed := range stacks {
			random := rand.New(rand.NewPCG(22, uint64(seed)))
			s := newStack(t, store(), random, outages)
			for range 40 {
				statuses[s.request(t, clients[random.IntN(3)])]++
				if outages && random.IntN(4) == 0 {
					time.Sleep(time.Duration(random.IntN(100)) * time.Millisecond)
				}
				for _, d := range s.seen {
					if d.Mode == core.ModeLocal {
						local++
					}
				}
			}
			s.store.down.Store(false)
			failed += s.failed
			if outages {
				time.Sleep(2 * time.Second) // leases are released once the store answers
			}
			now := limit.New(s.store.Store, nil)
			for set := range s.sets {
				bound(t, now, s.sets[set])
				for _, rule := range s.rulesOf(set) {
					for _, client := range clients {
						of, q := s.quotaOf(set, &rule, client), rule.Quota()
						require.Equal(t, q.Capacity()-s.taken[of], left(t, now, of.policy, of.rule, of.key), "seed %d: %s: %s", seed, of, &rule)
					}
				}
			}
		}
		t.Log(statuses, failed, local)
		assert.Greater(t, statuses[200], 5*stacks)
		assert.Greater(t, statuses[429], 5*stacks)
		if outages {
			assert.GreaterOrEqual(t, failed, stacks/20, "requests of which nothing was given back")
			assert.Greater(t, local, 5*stacks, "decisions without the store")
		}
	}
	memory := func() core.Store { return memstore.New(nil) }
	stacks := 200
	if race.Enabled {
		stacks = 100 // their requests come one by one
	}
	t.Run("memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { run(t, memory, stacks, false) })
	})
	t.Run("outages", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { run(t, memory, stacks, true) })
	})
	client := redistest.Real(t)
	redis := func() core.Store {
		require.NoError(t, client.FlushAll(t.Context()).Err())
		return redisstore.New(client, &redisstore.Options{Timeout: time.Minute})
	}
	t.Run("Redis", func(t *testing.T) { run(t, redis, 20, false) })
	t.Run("outages of Redis", func(t *testing.T) { run(t, redis, 3, true) })
	t.Run("Cluster", func(t *testing.T) {
		if testing.Short() {
			t.Skip("a cluster takes seconds to start")
		}
		client, prefix := redistest.Cluster(t), 0
		run(t, func() core.Store {
			prefix++
			return redisstore.New(client, &redisstore.Options{Prefix: fmt.Sprint("stack", prefix), Timeout: time.Minute})
		}, 10, false)
	})
}
