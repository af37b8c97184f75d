package proof

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/faultproxy"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/guard"
	"github.com/routelimit/limit/stores/redisstore"
	"github.com/routelimit/limit/stores/storetest"
)

// A recovery is an outage of three instances, and what an observer outside finds: how long
// after an instance's first answer it still decides otherwise than the store alone, what was
// admitted beside the bound, and what the store counts in the end beside what was admitted.
type recovery struct {
	name  string
	full  bool // only with LIMIT_FAULTS: it wants a machine with nothing else to do
	loses bool // the store may lose its data
	idle  int  // instances, the last ones, that make no call from the outage on until the store answers again

	outage func(f *recoveryFleet) (end func())
	lasts  time.Duration

	// Calls may take so long, if not a second: a busy machine must not look like an outage.
	timeout time.Duration
}

var recoveryWindow = (24 * time.Hour).Microseconds()

var recoveryQuotas = []core.Quota{
	{},
	{Algorithm: core.SlidingCells, Cells: 24},
	{Algorithm: core.SlidingCounter},
	{Algorithm: core.FixedWindow, Aligned: true},
	{Algorithm: core.FixedWindow},
	{Algorithm: core.TokenBucket},
	{Algorithm: core.LeakyBucket},
	{Algorithm: core.Queue},
}

var recoveries = []recovery{
	{name: "one failed call", outage: func(f *recoveryFleet) func() {
		f.proxies[0].Break(faultproxy.On(faultproxy.Fault{Kind: faultproxy.CutRequest}, "evalsha"))
		f.take(0, 0)
		f.proxies[0].Break(nil)
		return func() {}
	}},
	{name: "one lost reply", outage: func(f *recoveryFleet) func() {
		f.proxies[0].Break(faultproxy.On(faultproxy.Fault{Kind: faultproxy.LoseReply}, "evalsha"))
		f.take(0, 0)
		f.proxies[0].Break(nil)
		return func() {}
	}},
	{name: "paused for 150 ms", outage: pauseServer, lasts: 150 * time.Millisecond, timeout: 50 * time.Millisecond},
	{name: "paused for 400 ms", outage: pauseServer, lasts: 400 * time.Millisecond, timeout: 100 * time.Millisecond, full: true},
	{name: "paused for 2 s", outage: pauseServer, lasts: 2 * time.Second, full: true},
	{name: "paused for 60 s", outage: pauseServer, lasts: time.Minute, full: true},
	{name: "one instance cut off for 1 s", full: true, lasts: time.Second, outage: func(f *recoveryFleet) func() {
		require.NoError(f.t, f.proxies[0].Refuse(true))
		return func() { require.NoError(f.t, f.proxies[0].Refuse(false)) }
	}},
	{name: "restarted with its data", outage: restart(true), lasts: 300 * time.Millisecond, full: true},
	{name: "restarted without its data", outage: restart(false), lasts: 300 * time.Millisecond, loses: true, full: true},
	{name: "restarted without its data, one instance paused meanwhile", idle: 1, outage: restart(false), lasts: 300 * time.Millisecond, loses: true, full: true},
	{name: "emptied by a replication", outage: func(f *recoveryFleet) func() {
		empty := redistest.Launch(f.t)
		admin := f.server.Client()
		require.NoError(f.t, admin.Do(f.t.Context(), "replicaof", "127.0.0.1", empty.Addr[len("127.0.0.1:"):]).Err())
		return func() {
			redistest.Await(f.t, 30*time.Second, "the replication", func() bool { return admin.DBSize(context.Background()).Val() == 0 })
			require.NoError(f.t, admin.Do(context.Background(), "replicaof", "no", "one").Err())
		}
	}, lasts: 300 * time.Millisecond, loses: true, full: true},
}

func pauseServer(f *recoveryFleet) func() {
	f.server.Pause()
	return f.server.Resume
}

// restart kills the server and starts it again, with its data or without.
func restart(keep bool) func(*recoveryFleet) func() {
	return func(f *recoveryFleet) func() {
		if keep {
			require.NoError(f.t, f.server.Client().Save(f.t.Context()).Err())
		}
		f.server.Kill()
		return func() { f.server.Restart() }
	}
}

// A recoveryFleet is three instances, each behind a proxy of its own.
type recoveryFleet struct {
	t       *testing.T
	limit   int // of each key, in a day
	server  *redistest.Server
	proxies []*faultproxy.Proxy
	stores  []core.Store

	mu       sync.Mutex
	admitted []int // of each quota
	answered [3]time.Time
	strayed  [3]time.Time // the last decision after the outage that was not the store's
	end      time.Time    // of the outage
}

func newRecoveryFleet(t *testing.T, timeout time.Duration) *recoveryFleet {
	timeout = cmp.Or(timeout, time.Second)
	f := &recoveryFleet{t: t, limit: 150, server: redistest.Launch(t), admitted: make([]int, len(recoveryQuotas))}
	if full() { // both are above 128, where a log becomes a ring
		f.limit = 900
	}
	for range 3 {
		proxy := faultproxy.Start(t, f.server.Addr)
		client := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: proxy.Addr()}))
		f.proxies = append(f.proxies, proxy)
		f.stores = append(f.stores, guard.New(redisstore.New(client, &redisstore.Options{Timeout: timeout}), &guard.Options{Instances: 3, Slow: timeout}))
	}
	return f
}

func (f *recoveryFleet) charge(quota int) core.Charge {
	q := recoveryQuotas[quota]
	q.Limit, q.Window = int64(f.limit), recoveryWindow
	switch {
	case q.Algorithm == core.Queue:
		q.Burst = q.Limit - 1
	case q.Refills():
		q.Burst = q.Limit
	}
	return core.Charge{Rule: "r", Variant: q.Algorithm.String() + string(rune('0'+quota)), Key: "k", Quota: q, Cost: 1}
}

// take takes a unit of a quota.
func (f *recoveryFleet) take(instance, quota int) (d core.Decision) {
	d, err := core.Take(context.Background(), f.stores[instance], storetest.Of("p", f.charge(quota)))
	now := time.Now()
	require.NoError(f.t, err)
	f.mu.Lock()
	defer f.mu.Unlock()
	if d.Allowed {
		f.admitted[quota]++
	}
	switch {
	case f.end.IsZero():
	case d.Mode == core.ModeExact && f.answered[instance].IsZero():
		f.answered[instance] = now
	case d.Mode != core.ModeExact:
		f.strayed[instance] = now
	}
	return d
}

// counts returns what the store counts of a quota.
func (f *recoveryFleet) counts(quota int) int {
	store := redisstore.New(f.server.Client(), &patient)
	look := f.charge(quota)
	look.Cost = 0
	d := must.Get(core.Take(context.Background(), store, storetest.Of("p", look)))(f.t)
	return f.limit - int(d.Outcomes()[0].Remaining)
}

// TestRecovery has three instances meet outages under each algorithm, and checks that what
// follows is what the store alone decides.
func TestRecovery(t *testing.T) {
	for _, r := range recoveries {
		if r.full && !full() {
			continue
		}
		t.Run(r.name, func(t *testing.T) { r.run(t) })
	}
}

func (r *recovery) run(t *testing.T) {
	f := newRecoveryFleet(t, r.timeout)
	for quota := range recoveryQuotas {
		for i := range f.limit * 2 / 3 { // each instance takes two thirds of its share
			require.True(t, f.take(i%3, quota).Allowed)
		}
	}
	end := r.outage(f)
	began := time.Now()
	for round := 0; time.Since(began) < r.lasts; round++ {
		for quota := range recoveryQuotas {
			if round < 50 {
				f.take(round%(3-r.idle), quota)
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
	end()
	f.mu.Lock()
	f.end = time.Now()
	f.mu.Unlock()
	for time.Since(f.end) < 3*time.Second || slices.ContainsFunc(f.answered[:], time.Time.IsZero) && time.Since(f.end) < 20*time.Second { // a few requests
		for quota := range recoveryQuotas {
			for i := range 3 - r.idle {
				f.take(i, quota)
			}
		}
		r.idle = max(0, r.idle-1) // it returns
		time.Sleep(300 * time.Millisecond)
	}
	slowest := time.Duration(0)
	for i := range 3 {
		require.False(t, f.answered[i].IsZero())
		if f.strayed[i].After(f.answered[i]) {
			slowest = max(slowest, f.strayed[i].Sub(f.answered[i]))
		}
	}
	if r.timeout == 0 && full() {
		assert.LessOrEqual(t, slowest, time.Second, "an instance decides otherwise for longer")
	}
	var beside, twice []int
	for quota := range recoveryQuotas {
		counted, name := f.counts(quota), f.charge(quota).Variant
		twice = append(twice, counted-f.admitted[quota])
		if !r.loses {
			assert.InDelta(t, f.admitted[quota], counted, 5, name)
		}
		alone := 0 // of a machine that stalls for longer than the timeout: an outage of its own
		for i := range 3 * f.limit {
			if d := f.take(i%3, quota); d.Allowed && d.Mode == core.ModeLocal {
				alone++
			}
		}
		beside = append(beside, f.admitted[quota]-f.limit)
		bound := f.limit
		if r.loses {
			bound += 2 * f.limit / 3 // the shares of two
		}
		if r.loses && recoveryQuotas[quota].Refills() {
			bound = 2*f.limit + 2
		}
		assert.LessOrEqual(t, f.admitted[quota], bound+1+alone, name)
		if !r.loses {
			assert.GreaterOrEqual(t, f.admitted[quota], f.limit-10, name)
		}
		d := f.take(0, quota)
		assert.False(t, d.Allowed)
		assert.Contains(t, []core.Mode{core.ModeExact, core.ModeRemembered}, d.Mode, name)
	}
	t.Logf("%s: exact %v after an instance's first answer; beside the limit %v to %v; counted beside what was admitted %v",
		r.name, slowest.Round(time.Millisecond), slices.Min(beside), slices.Max(beside), twice)
	for quota := range recoveryQuotas { // a reset, once everything is paid
		for tries, alone := 0, false; !alone && tries < 20; tries++ {
			alone = f.takes(3, quota) // pays
			require.NoError(t, f.stores[0].Reset(t.Context(), storetest.Of("p", f.charge(quota))))
			f.admitted[quota] = 0
			alone = f.takes(2*f.limit, quota) && alone
		}
		assert.InDelta(t, f.limit, f.admitted[quota], 1, f.charge(quota).Variant)
	}
}

// takes takes n units of a quota, and reports whether the store decided about each.
func (f *recoveryFleet) takes(n, quota int) bool {
	local := 0
	for i := range n {
		if f.take(i%3, quota).Mode == core.ModeLocal {
			local++
		}
	}
	return local == 0
}

// TestBusyRecovery has a server lose its data beside requests on each key all the time, by four
// callers of each instance. They do not reach the limit.
func TestBusyRecovery(t *testing.T) {
	if !full() {
		t.Skip("set LIMIT_FAULTS=1 to run it on a machine with nothing else to do")
	}
	f := newRecoveryFleet(t, 0)
	f.limit = 90_000
	stop := make(chan struct{})
	var done sync.WaitGroup
	for i := range 4 * 3 * len(recoveryQuotas) {
		done.Go(func() {
			for tick := time.Tick(5 * time.Millisecond); ; <-tick {
				select {
				case <-stop:
					return
				default:
					f.take(i%3, i/3%len(recoveryQuotas))
				}
			}
		})
	}
	time.Sleep(300 * time.Millisecond) // of load, as below: nothing is waited for
	end := restart(false)(f)
	time.Sleep(300 * time.Millisecond)
	end()
	f.mu.Lock()
	f.end = time.Now()
	f.mu.Unlock()
	time.Sleep(3 * time.Second)
	close(stop)
	done.Wait()
	for i := range 3 {
		require.False(t, f.answered[i].IsZero())
		after := max(0, f.strayed[i].Sub(f.end))
		t.Logf("instance %d: without the store until %v after the restart", i, after.Round(time.Millisecond))
		assert.Less(t, after, time.Second)
	}
	for quota := range recoveryQuotas {
		t.Logf("%s: %d admitted, %+d counted", f.charge(quota).Variant, f.admitted[quota], f.counts(quota)-f.admitted[quota])
	}
}

// TestResetOfDebtors resets keys that an instance owes while it cannot reach the store. Its
// older debts are cancelled, and its later ones are not.
func TestResetOfDebtors(t *testing.T) {
	if !full() {
		t.Skip("set LIMIT_FAULTS=1 to run it on a machine with nothing else to do")
	}
	f := newRecoveryFleet(t, 0)
	for quota := range recoveryQuotas {
		require.True(t, f.take(0, quota).Allowed)
	}
	require.NoError(t, f.proxies[0].Refuse(true))
	for quota := range recoveryQuotas {
		for range 50 {
			require.Equal(t, core.ModeLocal, f.take(0, quota).Mode)
		}
	}
	time.Sleep(300 * time.Millisecond)
	for quota := range recoveryQuotas {
		require.NoError(t, f.stores[1].Reset(t.Context(), storetest.Of("p", f.charge(quota))))
		f.admitted[quota] = 0
	}
	time.Sleep(300 * time.Millisecond)
	later := 5 // but a bucket owes all of one debt, and cannot tell
	for quota := range recoveryQuotas {
		for range later {
			f.take(0, quota)
		}
	}
	require.NoError(t, f.proxies[0].Refuse(false))
	time.Sleep(time.Second)
	for quota := range recoveryQuotas {
		c := f.charge(quota)
		counted := f.counts(quota)
		t.Logf("%s: %d units counted after a reset and %d later ones", c.Variant, counted, later)
		if c.Quota.Refills() {
			continue
		}
		assert.Equal(t, later, counted, c.Variant)
	}
}

// TestResetThenRestart resets keys beside the instances that have used them up, and restarts
// the server with its data: the instances must not charge again what they remember.
func TestResetThenRestart(t *testing.T) {
	f := newRecoveryFleet(t, 0)
	operator := redisstore.New(f.server.Client(), &patient)
	for quota := range recoveryQuotas {
		for i := range f.limit {
			require.True(t, f.take(i%3, quota).Allowed)
		}
	}
	time.Sleep(50 * time.Millisecond)
	for quota := range recoveryQuotas {
		require.NoError(t, operator.Reset(t.Context(), storetest.Of("p", f.charge(quota))))
	}
	restart(true)(f)()
	for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		for quota := range recoveryQuotas {
			for i := range 3 {
				f.take(i, quota)
			}
		}
	}
	for quota := range recoveryQuotas {
		for i := range 2 * f.limit {
			f.take(i%3, quota)
		}
		assert.InDelta(t, 2*f.limit, f.admitted[quota], 2, f.charge(quota).Variant)
	}
}
