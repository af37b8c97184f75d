package limit_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/operate"
	"github.com/routelimit/limit/rules"
	"github.com/routelimit/limit/stores/memstore"
	"github.com/routelimit/limit/stores/redisstore"
)

var budget = limit.Named("budget", limit.Rule{Name: "tokens", Key: limit.ByUser, Limit: 100, Window: time.Hour, Algorithm: limit.FixedWindow{}})

func held(id string, cost int64) limit.Request {
	return limit.Request{Keys: map[string]string{"user": "u"}, Cost: cost, Hold: time.Minute, ID: id}
}

// budgetOn declares the policy on a store.
func budgetOn(t *testing.T, store core.Store) *limit.Policy {
	t.Helper()
	p := must.Get(limit.New(store, nil).Policy(budget))(t)
	return p
}

// dies is a store of a process that dies, so that no hold is extended, or no lease renewed.
type dies struct {
	*memstore.Store
	dead, unrenewed atomic.Bool
}

func (d *dies) Guarded() bool { return true }

func (d *dies) Extend(ctx context.Context, list []core.Extension) ([]bool, error) {
	if d.dead.Load() {
		return nil, core.ErrUnavailable
	}
	return d.Store.Extend(ctx, list)
}

func (d *dies) Renew(ctx context.Context, list []core.Charge) ([]bool, error) {
	if d.unrenewed.Load() {
		return nil, core.ErrUnavailable
	}
	return d.Store.Renew(ctx, list)
}

// afterDeath returns the policy of a process that holds on it too, once another one has died that
// holds 60 units.
func afterDeath(t *testing.T) *limit.Policy {
	t.Helper()
	store := memstore.New(nil)
	dying := &dies{Store: store}
	must.Get(budgetOn(t, dying).Take(t.Context(), held("stream", 60)))(t)
	dying.dead.Store(true)
	p := budgetOn(t, store)
	mine := must.Get(p.Take(t.Context(), held("", 10)))(t)
	require.NoError(t, mine.Settle(t.Context(), 10))
	return p
}

// leftOf returns what the user has left.
func leftOf(t *testing.T, p *limit.Policy) int64 {
	t.Helper()
	d := must.Get(p.Peek(t.Context(), limit.Request{Keys: map[string]string{"user": "u"}}))(t)
	for rule := range d.Rules() {
		return rule.Remaining
	}
	return 0
}

// TestHold has two processes share a store: a request that is repeated is charged once, and
// settled once, by either.
func TestHold(t *testing.T) {
	client := redistest.Client(t)
	first := budgetOn(t, patientStore(client, redisstore.Options{}))
	second := budgetOn(t, patientStore(client, redisstore.Options{}))
	a := must.Get(first.Take(t.Context(), held("job 1", 60)))(t)
	require.True(t, a.Allowed)
	b := must.Get(second.Take(t.Context(), held("job 1", 60)))(t)
	require.True(t, b.Allowed)
	assert.EqualValues(t, 40, leftOf(t, first))
	c := must.Get(second.Take(t.Context(), held("job 2", 60)))(t)
	assert.False(t, c.Allowed)
	require.NoError(t, b.Settle(t.Context(), 25))
	assert.EqualValues(t, 75, leftOf(t, first))
	require.ErrorIs(t, a.Settle(t.Context(), 50), limit.ErrSettled)
	require.ErrorIs(t, b.Settle(t.Context(), 50), limit.ErrSettled)
	assert.EqualValues(t, 75, leftOf(t, first))
	_, err := first.Take(t.Context(), held("job 1", 60))
	require.ErrorIs(t, err, limit.ErrSettled)
	assert.EqualValues(t, 75, leftOf(t, first))
}

// TestRepeatSettlesOnce has two decisions on one request, of which rules cost nothing at first, only
// watch, or need more units while it runs. They count once, whichever is settled first.
func TestRepeatSettlesOnce(t *testing.T) {
	rule := limit.Rule{Name: "held", Key: limit.ByUser, Limit: 1_000, Window: time.Hour, Algorithm: limit.FixedWindow{}, Debt: 50}
	free, watching := rule, rule
	free.Name, watching.Name, watching.Shadow = "free", "watching", &rules.Shadow{}
	for first := range 2 {
		store := memstore.New(nil)
		var policies [2]*limit.Policy
		var decisions [2]limit.Decision
		ctx, used := t.Context(), map[string]int64{"held": 150, "free": 40, "watching": 80}
		for i := range policies {
			policies[i] = must.Get(limit.New(store, nil).Policy(limit.Named("p", rule, free, watching)))(t)
			r := held("job", 100)
			r.Costs = map[string]int64{"free": 0}
			decisions[i] = must.Get(policies[i].Take(ctx, r))(t)
			require.NoError(t, decisions[i].Use(ctx, used))
		}
		require.NoError(t, decisions[first].SettleCosts(ctx, used))
		require.ErrorIs(t, decisions[1-first].SettleCosts(ctx, used), limit.ErrSettled)
		for left := range must.Get(policies[0].Peek(ctx, limit.Request{Keys: held("", 0).Keys}))(t).Rules() {
			assert.Equal(t, used[left.Name], left.Limit-left.Remaining, "%s, settled by %d", left.Name, first)
		}
	}
}

// TestHoldLives holds for ten minutes, by extending it, what is settled then.
func TestHoldLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := budgetOn(t, nil)
		d := must.Get(p.Take(t.Context(), held("", 60)))(t)
		time.Sleep(10 * time.Minute)
		other := must.Get(p.Take(t.Context(), held("", 60)))(t)
		require.False(t, other.Allowed)
		require.NoError(t, d.Settle(t.Context(), 10))
		assert.EqualValues(t, 90, leftOf(t, p))
		time.Sleep(time.Minute) // the timer of its extensions ends
	})
}

// outs is a store that does not answer some settlements, nor anything while it is down.
type outs struct {
	faulty
	core.Holder
	unsettled atomic.Int64
}

func (o *outs) Settle(ctx context.Context, list []core.Settlement) ([]core.Settled, error) {
	if o.unsettled.Add(-1) >= 0 {
		return nil, core.ErrUnavailable
	}
	return o.Holder.Settle(ctx, list)
}

// TestSettledBeforeAnOutage has an outage begin when a request was settled, at once or at the second
// call: the process then admits what is left in truth, whatever was reserved.
func TestSettledBeforeAnOutage(t *testing.T) {
	for unsettled := range int64(2) {
		for _, used := range []int64{5, 30, 90} {
			memory := memstore.New(nil)
			store := &outs{faulty: faulty{Store: memory}, Holder: memory}
			p := budgetOn(t, store)
			d := must.Get(p.Take(t.Context(), held("", 30)))(t)
			store.unsettled.Store(unsettled)
			require.NoError(t, d.Settle(t.Context(), used))
			store.down.Store(true)
			admitted := int64(0)
			for range 101 {
				if must.Get(p.Take(t.Context(), limit.Request{Keys: held("", 0).Keys}))(t).Allowed {
					admitted++
				}
			}
			assert.Equal(t, 100-used, admitted, "settled at %d after %d calls without an answer", used, unsettled)
		}
	}
}

// TestHoldEnds has a process die that holds units: they come back to the next request of
// another one, and what the dead one settles late is charged in full.
func TestHoldEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(nil)
		dying := &dies{Store: store}
		d := must.Get(budgetOn(t, dying).Take(t.Context(), held("stream", 60)))(t)
		dying.dead.Store(true)
		p := budgetOn(t, store)
		other := must.Get(p.Take(t.Context(), held("", 60)))(t)
		require.False(t, other.Allowed)
		time.Sleep(time.Minute)
		other = must.Get(p.Take(t.Context(), held("", 60)))(t)
		require.True(t, other.Allowed)
		dying.dead.Store(false)
		require.NoError(t, d.Settle(t.Context(), 15))
		assert.EqualValues(t, 25, leftOf(t, p))
		require.NoError(t, other.Settle(t.Context(), 0))
		time.Sleep(time.Minute)
	})
}

// TestHoldEndsForOthers has units come back to a request that holds nothing itself.
func TestHoldEndsForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := afterDeath(t)
		plain := held("", 90)
		plain.Hold = 0
		d := must.Get(p.Take(t.Context(), plain))(t)
		require.False(t, d.Allowed)
		time.Sleep(time.Minute)
		d = must.Get(p.Take(t.Context(), plain))(t)
		require.True(t, d.Allowed)
		assert.EqualValues(t, 0, leftOf(t, p))
		time.Sleep(time.Minute)
	})
}

// TestHoldEndsUnderABan has a request be refused whose units come back: the ban counts that once.
func TestHoldEndsUnderABan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(nil)
		policy := func(store core.Store) *limit.Policy {
			p := must.Get(limit.New(store, nil).Policy(limit.Named("barred",
				limit.Rule{Name: "tokens", Key: limit.ByUser, Limit: 100, Window: time.Hour, Algorithm: limit.FixedWindow{}},
				limit.Rule{Name: "ban", Key: limit.ByUser, Limit: 2, Window: time.Hour, Algorithm: limit.Ban{Bar: time.Hour}})))(t)
			return p
		}
		dying := &dies{Store: store}
		must.Get(policy(dying).Take(t.Context(), held("stream", 60)))(t)
		dying.dead.Store(true)
		time.Sleep(time.Minute)
		p, allowed := policy(store), 0
		for range 3 { // the first is a strike, the second finds that the units have come back
			d := must.Get(p.Take(t.Context(), held("", 60)))(t)
			if d.Allowed {
				allowed++
				require.NoError(t, d.Settle(t.Context(), 10))
			}
		}
		assert.Equal(t, 2, allowed)
		time.Sleep(time.Minute)
	})
}

// TestHoldGrows settles a hold whose request has said that it used more than is held.
func TestHoldGrows(t *testing.T) {
	for used, want := range map[int64]int64{0: 100, 5: 95, 15: 85, 20: 80, 30: 70} {
		p := budgetOn(t, nil)
		d := must.Get(p.Take(t.Context(), held("", 10)))(t)
		require.NoError(t, d.Use(t.Context(), map[string]int64{"tokens": 20}))
		require.NoError(t, d.Settle(t.Context(), used))
		assert.Equal(t, want, leftOf(t, p), "used %d", used)
	}
}

// TestHoldsOfDifferentLives extends a short hold that was taken after a long one.
func TestHoldsOfDifferentLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := budgetOn(t, nil)
		r := held("", 10)
		r.Hold = 24 * time.Hour
		long := must.Get(p.Take(t.Context(), r))(t)
		short := must.Get(p.Take(t.Context(), held("", 60)))(t)
		time.Sleep(10 * time.Minute)
		other := must.Get(p.Take(t.Context(), held("", 60)))(t)
		assert.False(t, other.Allowed)
		require.NoError(t, short.Settle(t.Context(), 10))
		require.NoError(t, long.Settle(t.Context(), 10))
		time.Sleep(24 * time.Hour)
	})
}

// TestObserveThatPanicsHolds has Observe panic, so that nothing that could settle a request gets it:
// it is not extended.
func TestObserveThatPanicsHolds(t *testing.T) {
	for name, decide := range map[string]func(*limit.Policy){
		"take": func(p *limit.Policy) { _, _ = p.Take(t.Context(), held("", 100)) },
		"wait": func(p *limit.Policy) { _, _ = p.Wait(t.Context(), held("", 100)) },
		"serve": func(p *limit.Policy) {
			_ = p.Serve(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil), held("", 100), http.NotFoundHandler())
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := memstore.New(nil)
			p := mustPolicy(limit.New(store, &limit.Options{Observe: func(*http.Request, limit.Decision, error) { panic("oops") }}), budget)
			assert.Panics(t, func() { decide(p) })
			time.Sleep(5 * time.Minute)
			a := must.Get(core.AccountOf(t.Context(), store, core.Charge{Policy: "budget", Rule: "tokens", Key: "u", Quota: core.Quota{Algorithm: core.FixedWindow, Limit: 100, Window: 3600_000_000}}))(t)
			assert.Zero(t, a.Holds, name)
		})
	}
}

// TestHoldBesideLease has calls fail that extend holds, or those that renew leases: the others go on.
func TestHoldBesideLease(t *testing.T) {
	for _, extended := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := &dies{Store: memstore.New(nil)}
			p := mustPolicy(limit.New(store, nil), limit.Named("exports", limit.PerUser(24*time.Hour, 100),
				limit.Rule{Name: "running", Key: limit.ByUser, Limit: 1, Algorithm: limit.Concurrency{}}))
			r := held("", 1)
			r.Hold = 30 * time.Second // a lease lives as long
			d := must.Get(p.Take(t.Context(), r))(t)
			store.dead.Store(!extended)
			store.unrenewed.Store(extended)
			time.Sleep(5 * time.Minute)
			other := must.Get(p.Take(t.Context(), held("", 1)))(t)
			assert.Equal(t, extended, other.Allowed, "the slot is free")
			if extended {
				assert.EqualValues(t, 98, leftOf(t, p), "both are held")
				require.NoError(t, other.Settle(t.Context(), 1))
			}
			other.Release()
			d.Release()
			require.NoError(t, d.Settle(t.Context(), 1))
			time.Sleep(time.Minute)
		})
	}
}

// TestHoldWithoutRoom holds more in memory than there is room for: the rest is counted and logged.
func TestHoldWithoutRoom(t *testing.T) {
	var log strings.Builder
	l := limit.New(nil, &limit.Options{MaxKeys: 256, Log: slog.New(slog.NewTextHandler(&log, nil))})
	p := mustPolicy(l, limit.Named("jobs", limit.Rule{Name: "all", Key: limit.Everyone, Limit: 10_000, Window: time.Hour, Algorithm: limit.FixedWindow{}}))
	const room = 4 * 256
	for i := range room + 10 {
		r := held(fmt.Sprint(i), 1)
		r.Keys = nil
		d := must.Get(p.Take(t.Context(), r))(t)
		require.NoError(t, d.Settle(t.Context(), 1))
		_, err := p.Take(t.Context(), r)
		require.Equal(t, i < room, errors.Is(err, limit.ErrSettled), i)
	}
	assert.EqualValues(t, 20, operate.ReadStats(l).Unheld)
	assert.Equal(t, 1, strings.Count(log.String(), "LIMIT-210"))
}

// TestHoldIDOfAnotherKey has two users choose the same ID.
func TestHoldIDOfAnotherKey(t *testing.T) {
	p := must.Get(limit.New(memstore.New(nil), nil).Policy(limit.Named("both",
		limit.Rule{Name: "user", Key: limit.ByUser, Limit: 100, Window: time.Hour, Algorithm: limit.FixedWindow{}},
		limit.Rule{Name: "all", Key: limit.Everyone, Limit: 1000, Window: time.Hour, Algorithm: limit.FixedWindow{}})))(t)
	first := must.Get(p.Take(t.Context(), held("1", 10)))(t)
	r := held("1", 10)
	r.Keys = map[string]string{"user": "v"}
	second := must.Get(p.Take(t.Context(), r))(t)
	for rule := range second.Rules() {
		assert.Equal(t, map[string]int64{"user": 90, "all": 980}[rule.Name], rule.Remaining, rule.Name)
	}
	require.NoError(t, first.Settle(t.Context(), 10))
	require.NoError(t, second.Settle(t.Context(), 10))
}

// TestHoldIDOfSwappedKeys has two accounts number the messages to each other, and a key stand for one
// that is missing: each request has other keys, and so is another one.
func TestHoldIDOfSwappedKeys(t *testing.T) {
	from := limit.By("from", func(*http.Request) string { return "" })
	to := limit.By("to", func(*http.Request) string { return "" })
	p := must.Get(limit.New(memstore.New(nil), nil).Policy(limit.Named("messages",
		limit.Per(from, time.Hour, 10), limit.Per(to, time.Hour, 10), limit.Rule{Name: "all", Key: limit.Everyone, Limit: 100, Window: time.Hour})))(t)
	for i, keys := range []map[string]string{{"from": "a", "to": "b"}, {"from": "b", "to": "a"}, {"from": "a", "to": ""}, {"from": "", "to": "a"}} {
		for range 2 { // the second is a repeat
			d := must.Get(p.Take(t.Context(), limit.Request{Keys: keys, Hold: time.Minute, ID: "1"}))(t)
			for rule := range d.Rules() {
				if rule.Name == "all" {
					assert.EqualValues(t, 99-i, rule.Remaining, "%v", keys)
				}
			}
		}
	}
}

// TestHoldIDOfAnotherPolicy has two policies that share a set give their requests one ID, such as
// that of an order: each is charged, and settled, alone.
func TestHoldIDOfAnotherPolicy(t *testing.T) {
	l := limit.New(nil, nil)
	mails := mustPolicy(l, limit.Named("mails", limit.PerUser(time.Hour, 10)).With(budget))
	exports := mustPolicy(l, limit.Named("exports", limit.PerUser(time.Hour, 3)).With(budget))
	mail := must.Get(mails.Take(t.Context(), held("order", 1)))(t)
	export := must.Get(exports.Take(t.Context(), held("order", 1)))(t)
	assert.EqualValues(t, 2, leftOf(t, exports))
	require.NoError(t, mail.Settle(t.Context(), 1))
	again := must.Get(exports.Take(t.Context(), held("order", 1)))(t)
	assert.EqualValues(t, 2, leftOf(t, exports))
	require.NoError(t, export.Settle(t.Context(), 0))
	require.ErrorIs(t, again.Settle(t.Context(), 1), limit.ErrSettled)
	assert.EqualValues(t, 3, leftOf(t, exports))
	assert.EqualValues(t, 99, leftOf(t, mustPolicy(l, budget)))
}

func TestBadHolds(t *testing.T) {
	p := budgetOn(t, nil)
	for _, row := range []struct {
		change func(*limit.Request)
		want   string
	}{
		{func(r *limit.Request) { r.Hold = 0 }, "ID names a request with Hold"},
		{func(r *limit.Request) { r.Hold = -1 }, "write 1s to 24h"},
		{func(r *limit.Request) { r.Hold = time.Microsecond }, "write 1s to 24h"},
		{func(r *limit.Request) { r.Hold = 8760 * time.Hour }, "write 1s to 24h"},
		{func(r *limit.Request) { r.ID = strings.Repeat("x", 1<<20) }, "an ID of 1048576 bytes: write up to 1024"},
		{func(r *limit.Request) { r.UpTo = true }, "leave out Hold, or UpTo"},
	} {
		r := held("x", 1)
		row.change(&r)
		_, err := p.Take(t.Context(), r)
		require.ErrorContains(t, err, row.want)
	}
	spread := budgetOn(t, redisstore.New(redistest.Client(t), &redisstore.Options{Spread: 2}))
	_, err := spread.Take(t.Context(), held("x", 1))
	require.ErrorContains(t, err, "the store holds nothing")
	slots := must.Get(limit.New(nil, nil).Policy(limit.Named("slots", limit.Rule{Key: limit.ByUser, Limit: 1, Window: time.Minute, Algorithm: limit.Concurrency{}})))(t)
	_, err = slots.Take(t.Context(), held("x", 1))
	require.ErrorContains(t, err, "no rule of the policy can be held")
	assert.False(t, errors.Is(err, limit.ErrUndecided))
}

// TestHoldOverHTTP has the handler of one process die within a request, whose units come back,
// and that of another one settle what it used. What it holds is not given back by a set inside:
// the handler settles it.
func TestHoldOverHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(nil)
		dying := &dies{Store: store}
		serve := func(p *limit.Policy, r limit.Request, next http.HandlerFunc) int {
			w := httptest.NewRecorder()
			require.NoError(t, p.Serve(w, httptest.NewRequest(http.MethodPost, "/", nil), r, next))
			return w.Code
		}
		limiter := limit.New(store, nil)
		p := must.Get(limiter.Policy(budget))(t)
		end := make(chan struct{})
		defer close(end)
		go serve(budgetOn(t, dying), held("", 60), func(http.ResponseWriter, *http.Request) { <-end })
		synctest.Wait()
		dying.dead.Store(true)
		assert.Equal(t, 429, serve(p, held("", 60), nil))
		time.Sleep(time.Minute)
		inner := limiter.Limit(limit.Named("inner", limit.Global(time.Hour, 1)))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		for _, want := range []int{200, 429} {
			var d limit.Decision
			assert.Equal(t, want, serve(p, held("", 60), func(w http.ResponseWriter, r *http.Request) {
				d = limit.DecisionFrom(r.Context())
				inner.ServeHTTP(w, r)
				if want == 200 {
					time.Sleep(5 * time.Minute) // it is extended
					assert.EqualValues(t, 40, leftOf(t, p))
					require.NoError(t, d.Settle(t.Context(), 0))
				} else { // it was given back
					assert.EqualValues(t, 100, leftOf(t, p))
					require.ErrorIs(t, d.Settle(t.Context(), 0), limit.ErrSettled)
				}
			}))
			assert.EqualValues(t, 100, leftOf(t, p))
		}
		assert.Equal(t, 429, serve(p, held("", 60), inner.ServeHTTP))
		assert.EqualValues(t, 100, leftOf(t, p), "given back")
		assert.Equal(t, 200, serve(p, held("", 60), func(http.ResponseWriter, *http.Request) {}))
		time.Sleep(10 * time.Minute)
		assert.EqualValues(t, 40, leftOf(t, p), "what its handler does not settle stays")
		err := p.Serve(nil, httptest.NewRequest(http.MethodPost, "/", nil), held("job", 60), nil)
		require.ErrorContains(t, err, "for ID call limit.Policy.Take")
		bad := held("", 1)
		bad.Hold = time.Microsecond
		require.ErrorContains(t, p.Serve(nil, httptest.NewRequest(http.MethodPost, "/", nil), bad, nil), "write 1s to 24h")
		time.Sleep(time.Minute)
	})
}

// TestHoldEndsDespiteOthers has units come back to a client although others are refused all the
// time, whom nothing that comes back would help.
func TestHoldEndsDespiteOthers(t *testing.T) {
	for _, other := range []int64{1000, 100} { // more than there ever is, and a key that is used up
		synctest.Test(t, func(t *testing.T) {
			p := afterDeath(t)
			take := func(user string, cost int64) bool {
				d := must.Get(p.Take(t.Context(), limit.Request{Keys: map[string]string{"user": user}, Cost: cost}))(t)
				return d.Allowed
			}
			time.Sleep(time.Minute)
			for i := range 3 {
				take(fmt.Sprint("other", i), 100)
			}
			admitted := false
			for range 250 { // five seconds: the others have the hash of u in a few turns at most
				for i := range 3 {
					take(fmt.Sprint("other", i), other)
				}
				admitted = admitted || take("u", 90)
				time.Sleep(20 * time.Millisecond)
			}
			assert.True(t, admitted, other)
		})
	}
}

// TestRepeatBehindQueue repeats a request that must wait for too long: its hold is not extended
// by that, and ends with its process.
func TestRepeatBehindQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(nil)
		set := limit.Named("budget", limit.Rule{Name: "tokens", Key: limit.ByUser, Limit: 100, Window: 24 * time.Hour, Algorithm: limit.FixedWindow{}},
			limit.Rule{Name: "pace", Key: limit.ByUser, Limit: 100_000, Window: time.Second, Algorithm: limit.Queue{Burst: 10_000}})
		dying := &dies{Store: store}
		must.Get(mustPolicy(limit.New(dying, nil), set).Take(t.Context(), held("job", 60)))(t)
		p := mustPolicy(limit.New(&dies{Store: store}, nil), set)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _, _ = p.Wait(ctx, held("", 50)) }()
		synctest.Wait() // it is queued
		short, stop := context.WithTimeout(t.Context(), time.Second)
		_, err := p.Wait(short, held("job", 60))
		require.Error(t, err)
		stop()
		cancel()
		dying.dead.Store(true)
		time.Sleep(2 * time.Minute)
		d := must.Get(p.Take(t.Context(), held("", 60)))(t)
		require.True(t, d.Allowed, "the hold has ended")
		require.NoError(t, d.Settle(t.Context(), 0))
	})
}

// TestHoldGivenBackThenServed serves requests through one set after another one has refused them:
// the set around both is charged, and shows what came back meanwhile.
func TestHoldGivenBackThenServed(t *testing.T) {
	for name, given := range map[string]limit.Request{"settle": {Cost: 10, Settle: true}, "hold": {Cost: 10, Hold: time.Minute}} {
		gaveBack := 0
		limiter := limit.New(nil, &limit.Options{Observe: func(_ *http.Request, d limit.Decision, _ error) {
			if d.GivenBack {
				gaveBack++
			}
		}})
		outer := mustPolicy(limiter, limit.Named("outer", limit.Rule{Key: limit.Everyone, Limit: 1000, Window: time.Hour}))
		none := mustPolicy(limiter, limit.Named("none", limit.Rule{Key: limit.Everyone, Limit: 1, Window: time.Hour}))
		some := mustPolicy(limiter, limit.Named("some", limit.Rule{Key: limit.Everyone, Limit: 100, Window: time.Hour}))
		must.Get(none.Take(t.Context(), limit.Request{}))(t)
		served := 0
		ok := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ })
		for range 50 {
			w := httptest.NewRecorder()
			require.NoError(t, outer.Serve(w, httptest.NewRequest("GET", "/", nil), given, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				none.Handler(ok).ServeHTTP(w, r) // refuses
				some.Handler(ok).ServeHTTP(w, r) // serves
			})))
			left := 1000 - 10*(served-1)
			assert.Contains(t, w.Header().Get("RateLimit"), fmt.Sprintf(`"global-1h";r=%d`, left), name)
		}
		assert.Equal(t, []int{50, 50}, []int{served, gaveBack}, name)
		assert.EqualValues(t, 500, leftOf(t, outer), name)
	}
}

// TestRepeatTakesASlot repeats a request whose slot another one has by now: a repeat is charged
// nothing more, but it runs like any other. Once there is a slot, it has that until it is released.
func TestRepeatTakesASlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		device := limit.By("device", func(*http.Request) string { return "" })
		p := mustPolicy(limit.New(nil, nil), limit.Named("exports", limit.PerUser(time.Hour, 100),
			limit.Rule{Name: "running", Key: limit.Everyone, Limit: 1, Algorithm: limit.Concurrency{}},
			limit.Rule{Name: "devices", Key: limit.ByUser, Limit: 2, Window: time.Hour, Algorithm: limit.Distinct{Values: device}}))
		take := func(id, device string) limit.Decision {
			r := held(id, 1)
			r.Keys["device"] = device
			d := must.Get(p.Take(t.Context(), r))(t)
			return d
		}
		first := take("file 1", "a")
		first.Release()
		other := take("file 2", "b")
		for range 10 {
			require.False(t, take("file 1", "a").Allowed)
		}
		other.Release()
		require.False(t, take("file 1", "c").Allowed, "a third device")
		again := take("file 1", "b")
		require.True(t, again.Allowed)
		time.Sleep(5 * time.Minute) // its lease and the hold are kept
		require.False(t, take("file 2", "b").Allowed)
		again.Release()
		require.NoError(t, again.Settle(t.Context(), 0))
		require.NoError(t, other.Settle(t.Context(), 0))
		last, left := take("file 3", "b"), make(map[string]int64)
		for rule := range last.Rules() {
			left[rule.Name] = rule.Remaining
		}
		assert.EqualValues(t, 99, left["per-user-1h"])
		last.Release()
		require.NoError(t, last.Settle(t.Context(), 0))
		time.Sleep(time.Minute)
	})
}

// TestRepeatTakesATurn repeats a request that is queued for longer than the repeat may wait: that
// ends no hold of the first one.
func TestRepeatTakesATurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := mustPolicy(limit.New(nil, nil), limit.Named("budget",
			limit.Rule{Name: "tokens", Key: limit.ByUser, Limit: 100, Window: time.Hour, Algorithm: limit.FixedWindow{}},
			limit.Rule{Name: "pace", Key: limit.ByUser, Limit: 60, Window: time.Minute, Algorithm: limit.Queue{Burst: 200}}))
		first := must.Get(p.Take(t.Context(), held("job", 60)))(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		late := must.Get(p.Take(ctx, held("job", 60)))(t)
		require.False(t, late.Allowed)
		assert.EqualValues(t, 40, leftOf(t, p))
		require.NoError(t, first.Settle(t.Context(), 50))
		assert.EqualValues(t, 50, leftOf(t, p))
		time.Sleep(time.Minute)
	})
}

// A mute store does not answer as many calls that give back, and does what they say or does not.
type mute struct {
	*memstore.Store
	calls atomic.Int64
	acts  bool
}

func (s *mute) Guarded() bool { return true }

func (s *mute) Return(ctx context.Context, list []core.Return) ([]core.Returned, error) {
	return muted(s, func() ([]core.Returned, error) { return s.Store.Return(ctx, list) })
}

func (s *mute) Settle(ctx context.Context, list []core.Settlement) ([]core.Settled, error) {
	return muted(s, func() ([]core.Settled, error) { return s.Store.Settle(ctx, list) })
}

func muted[T any](s *mute, call func() ([]T, error)) ([]T, error) {
	switch {
	case s.calls.Add(-1) < 0:
		return call()
	case s.acts:
		_, _ = call()
	}
	return nil, core.ErrUnavailable
}

// TestServedAfterLostReturns serves requests after another set has refused them while the store
// did not answer what it was to give back. None of them is free.
func TestServedAfterLostReturns(t *testing.T) {
	test := func(t *testing.T, given limit.Request, calls int64, acts bool) {
		store := &mute{Store: memstore.New(nil), acts: acts}
		seen := 0
		l := limit.New(store, &limit.Options{Log: slog.New(slog.DiscardHandler), Observe: func(_ *http.Request, d limit.Decision, err error) {
			if d.Policy == "outer" && d.Outcome() == "admitted" && err == nil {
				seen++
			}
		}})
		outer := mustPolicy(l, limit.Named("outer", limit.Rule{Key: limit.Everyone, Limit: 6, Window: time.Hour}))
		none := mustPolicy(l, limit.Named("none", limit.Rule{Key: limit.Everyone, Limit: 1, Window: time.Hour}))
		some := mustPolicy(l, limit.Named("some", limit.Rule{Key: limit.Everyone, Limit: 100, Window: time.Hour}))
		must.Get(none.Take(t.Context(), limit.Request{}))(t)
		served := 0
		ok := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ })
		for range 20 {
			require.NoError(t, outer.Serve(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil), given, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				store.calls.Store(calls)
				none.Handler(ok).ServeHTTP(unsent{w}, r)
				some.Handler(ok).ServeHTTP(w, r)
			})))
			store.calls.Store(0)
			time.Sleep(10 * time.Second) // what is held is settled later
		}
		want := 6
		if given.Hold == 0 && !acts {
			want = 3 // a unit that may have come back counts twice
		}
		assert.Equal(t, []int{want, 0}, []int{served, int(leftOf(t, outer))})
		if given.Hold > 0 && calls == 1 {
			want *= 2 // given back, by a call that is repeated, and then taken again
		}
		assert.Equal(t, want, seen)
		time.Sleep(time.Hour)
	}
	for name, given := range map[string]limit.Request{"taken": {}, "settle": {Settle: true}, "hold": {Hold: time.Minute}} {
		for _, calls := range []int64{1, 3} {
			for _, acts := range []bool{false, true} {
				t.Run(fmt.Sprint(name, " ", calls, " ", acts), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { test(t, given, calls, acts) })
				})
			}
		}
	}
}

// TestHoldSettledByAnswer has a set inside refuse what another one holds, of which some rules
// settle by the answer and some count attempts: those stay held until there is one.
func TestHoldSettledByAnswer(t *testing.T) {
	for name, given := range map[string]limit.Request{"settle": {Settle: true}, "hold": {Hold: 10 * time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			l := limit.New(nil, nil)
			outer := mustPolicy(l, limit.Named("outer",
				limit.Rule{Name: "failures", Key: limit.Everyone, Limit: 9, Window: time.Hour, Settle: rules.OnStatus(401)},
				limit.Rule{Name: "attempts", Key: limit.Everyone, Limit: 9, Window: time.Hour, Attempts: true},
				limit.Rule{Name: "requests", Key: limit.Everyone, Limit: 9, Window: time.Hour}))
			inner := mustPolicy(l, limit.Named("inner", limit.Rule{Key: limit.Everyone, Limit: 1, Window: time.Hour}))
			must.Get(inner.Take(t.Context(), limit.Request{}))(t)
			lefts := func() (list []int64) {
				d := must.Get(outer.Peek(t.Context(), limit.Request{}))(t)
				for rule := range d.Rules() {
					list = append(list, rule.Remaining)
				}
				return list
			}
			serve := func(status int) {
				var within []int64
				require.NoError(t, outer.Serve(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil), given, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					inner.Handler(ok200).ServeHTTP(unsent{w}, r)
					time.Sleep(time.Minute) // it is extended
					within = lefts()
					w.WriteHeader(status)
				})))
				want := lefts()
				if status != 401 {
					want[0]--
				}
				assert.Equal(t, want, within, name)
			}
			serve(429)
			assert.Equal(t, []int64{9, 8, 9}, lefts(), name)
			serve(401)
			assert.Equal(t, []int64{8, 7, 9}, lefts(), name)
			reserved, settled := operate.ReadStats(l).Reserved, operate.ReadStats(l).Settled
			assert.Equal(t, []int64{2, 2}, []int64{reserved, settled}, name)
		})
	}
}
