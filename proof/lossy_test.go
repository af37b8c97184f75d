package proof

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/guard"
	"github.com/routelimit/limit/stores/redisstore"
	"github.com/routelimit/limit/stores/storetest"
)

// How much is admitted when a failover loses acknowledged writes.
const (
	lossyLimit  = 30
	lossyKept   = 10 // units of each key that the replica has
	lossyLost   = lossyLimit - lossyKept
	lossyKeys   = 3
	lossyWindow = 10 * time.Second

	// A delay of a busy machine must not count as a failure before the failover.
	lossyTimeout = time.Second
)

// A lossyFleet is some instances. The first uses up the limit before the failover. The
// idle ones make no call between the kill and the moment at which the client knows the
// new primary.
type lossyFleet struct {
	name      string
	instances int
	unguarded bool
	idle      int // the last ones

	prefix  string
	clients []redis.UniversalClient
	stores  []core.Store

	mu       sync.Mutex
	admitted map[int][]lossyCall // by key
	modes    map[core.Mode]int   // of decisions after the kill
	failed   int
	met      int // instances whose first call after the kill failed
}

// A lossyCall was decided at some time between its begin and its end.
type lossyCall struct{ began, ended time.Time }

func lossyFleets() []*lossyFleet {
	return []*lossyFleet{
		{name: "one, behind a guard", instances: 1},
		{name: "one, without a guard", instances: 1, unguarded: true},
		{name: "one, behind a guard, idle meanwhile", instances: 1, idle: 1},
		{name: "three, behind guards", instances: 3},
		{name: "three, behind guards, two idle meanwhile", instances: 3, idle: 2},
	}
}

// bound returns the most that a window may admit of a key after so many units were lost.
// An instance whose first call finds the new primary admits as if they were never taken.
func (f *lossyFleet) bound(lost int) int {
	share := (lossyLimit + f.instances - 1) / f.instances
	switch {
	case f.unguarded:
		return lossyLimit + lost
	case f.met < f.instances:
		return lossyLimit + lost + f.met*share
	}
	return lossyLimit + (f.instances-1)*share
}

func (f *lossyFleet) start(t *testing.T, prefix string, dial func() redis.UniversalClient) {
	f.prefix, f.admitted, f.modes = prefix, make(map[int][]lossyCall), make(map[core.Mode]int)
	for range f.instances {
		client := dial()
		t.Cleanup(func() { client.Close() })
		var store core.Store = redisstore.New(client, &redisstore.Options{Prefix: prefix, Timeout: lossyTimeout})
		if !f.unguarded {
			store = guard.New(store, &guard.Options{Instances: f.instances, Slow: lossyTimeout})
		}
		f.clients, f.stores = append(f.clients, client), append(f.stores, store)
	}
}

func lossyCharge(key int, cost int64) []core.Charge {
	return []core.Charge{{Rule: "r", Key: strconv.Itoa(key), Cost: cost,
		Quota: core.Quota{Limit: lossyLimit, Window: lossyWindow.Microseconds()}}}
}

// take takes a unit of a key.
func (f *lossyFleet) take(instance, key int) (core.Decision, error) {
	began := time.Now()
	d, err := core.Take(context.Background(), f.stores[instance], storetest.Of("p", lossyCharge(key, 1)...))
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil && d.Allowed {
		f.admitted[key] = append(f.admitted[key], lossyCall{began, time.Now()})
	}
	return d, err
}

// spend takes n units of each key with the first instance.
func (f *lossyFleet) spend(t *testing.T, n int) {
	for key := range lossyKeys {
		for range n {
			d := must.Get(f.take(0, key))(t, f.name)
			require.True(t, d.Allowed, f.name)
			require.Equal(t, core.ModeExact, d.Mode, f.name)
		}
	}
}

// drive makes requests with an instance continuously.
func (f *lossyFleet) drive(instance int, stop <-chan struct{}) {
	for first := true; ; {
		for key := range lossyKeys {
			d, err := f.take(instance, key)
			f.mu.Lock()
			if err != nil {
				f.failed++
			} else {
				f.modes[d.Mode]++
			}
			if first && d.Mode != core.ModeExact {
				f.met++
			}
			f.mu.Unlock()
			first = false
		}
		select {
		case <-stop:
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// most returns the most that was certainly admitted of a key within a window.
func (f *lossyFleet) most() (most int) {
	for _, calls := range f.admitted {
		for _, first := range calls {
			n := 0
			for _, c := range calls {
				if !c.began.Before(first.began) && c.ended.Before(first.began.Add(lossyWindow)) {
					n++
				}
			}
			most = max(most, n)
		}
	}
	return most
}

// cutReplicas cuts off the replicas of a primary for the rest of its life. They keep
// what it has acknowledged until then.
func cutReplicas(t *testing.T, primary *redistest.Server, replicas int) {
	client := primary.Client()
	require.EqualValues(t, replicas, client.Wait(t.Context(), replicas, time.Minute).Val())
	require.NoError(t, client.Do(t.Context(), "acl", "setuser", "default", "-psync", "-sync").Err())
	require.NoError(t, client.Do(t.Context(), "client", "kill", "type", "replica").Err())
	redistest.Await(t, 10*time.Second, "no replica", func() bool {
		return strings.Contains(client.Info(t.Context(), "replication").Val(), "connected_slaves:0")
	})
}

// loseWrites makes a failover lose the last units of the first instance of each fleet,
// while the instances that are not idle continue. It compares admissions with the
// bounds. Lose kills the primary, and returns when clients can know the new one.
func loseWrites(t *testing.T, round int, dial func() redis.UniversalClient, primary *redistest.Server, replicas []*redistest.Server, lose func()) {
	fleets := lossyFleets()
	for i, f := range fleets {
		f.start(t, fmt.Sprintf("lossy%d-%d", round, i), dial)
		f.spend(t, lossyKept)
		for _, s := range f.stores { // each has its connection
			must.Get(core.Take(t.Context(), s, storetest.Of("p", lossyCharge(0, 0)...)))(t)
		}
	}
	kept := stateAt(t, primary, fleets[0].prefix)
	cutReplicas(t, primary, len(replicas))
	cut := time.Now()
	for _, f := range fleets {
		f.spend(t, lossyLost)
	}
	require.NotEqual(t, kept, stateAt(t, primary, fleets[0].prefix))
	for _, r := range replicas {
		require.Equal(t, kept, stateAt(t, r, fleets[0].prefix), "the replica was not cut off")
	}
	if late := time.Since(cut); late > 3*time.Second {
		t.Skipf("the machine is too busy: Sentinel promotes no replica that has been cut off for %v", late)
	}
	stop := make(chan struct{})
	var driving sync.WaitGroup
	drive := func(idle bool) {
		for _, f := range fleets {
			for i := range f.instances {
				if (i >= f.instances-f.idle) == idle {
					driving.Go(func() { f.drive(i, stop) })
				}
			}
		}
	}
	killed := time.Now()
	alive := primary.Client()
	driving.Go(func() {
		for alive.Ping(context.Background()).Err() == nil {
		}
		drive(false)
	})
	var promoted atomic.Int64
	for _, r := range replicas {
		client := r.Client()
		driving.Go(func() {
			for isPrimary := false; !isPrimary; {
				select {
				case <-stop:
					return
				case <-time.After(5 * time.Millisecond):
				}
				isPrimary = strings.Contains(client.Info(context.Background(), "replication").Val(), "role:master")
			}
			promoted.Add(1)
		})
	}
	lose()
	back := time.Since(killed)
	drive(true)
	time.Sleep(time.Until(killed.Add(lossyWindow * 3 / 2))) // of load, until the lost units would have expired
	close(stop)
	driving.Wait()
	// If the new primary is taken for dead too, the next one lacks at most as much.
	lost := lossyLost * int(promoted.Load())
	for _, f := range fleets {
		most, bound := f.most(), f.bound(lost)
		t.Logf("%s: limit %d, lost writes %d of each key, admitted most in any window %d, bound %d; after the kill %v, %d failed, met by %d of %d (%d promoted, in %v)",
			f.name, lossyLimit, lost, most, bound, f.modes, f.failed, f.met, f.instances, promoted.Load(), back.Round(time.Millisecond))
		require.LessOrEqual(t, most, bound, f.name)
		require.GreaterOrEqual(t, most, lossyLimit, f.name)
	}
}

// stateAt returns the state of the first key on a server, primary or replica.
func stateAt(t *testing.T, s *redistest.Server, prefix string) string {
	conn := s.Client().Conn()
	defer conn.Close()
	_ = conn.ReadOnly(t.Context()).Err() // a replica in a Cluster redirects otherwise; other servers return an error
	value := must.Get(conn.Get(t.Context(), redisKey(prefix, "p", "r", "0")).Result())(t)
	return value
}

// TestLossyFailovers makes Sentinel promote a replica that lacks the last writes.
func TestLossyFailovers(t *testing.T) {
	sentinel := redistest.StartSentinel(t)
	for round := range failovers() {
		primary := sentinel.AwaitReplicas(t)
		var replicas []*redistest.Server
		for _, node := range sentinel.Nodes {
			if node != primary {
				replicas = append(replicas, node)
			}
		}
		var dead, next *redistest.Server
		loseWrites(t, round, func() redis.UniversalClient {
			return redis.NewFailoverClient(&redis.FailoverOptions{MasterName: sentinel.Name, SentinelAddrs: sentinel.Addrs})
		}, primary, replicas, func() {
			dead, next, _ = failover(t, sentinel)
			for _, addr := range sentinel.Addrs {
				sentinel.Await(t, addr, "Sentinel names the new primary", func(watcher *redis.SentinelClient) bool {
					named, err := watcher.GetMasterAddrByName(t.Context(), sentinel.Name).Result()
					return err == nil && named[0]+":"+named[1] == next.Addr
				})
			}
		})
		rejoin(t, sentinel, dead, next)
	}
}

// TestLossyKills does the same on a Cluster.
func TestLossyKills(t *testing.T) {
	nodes := redistest.StartCluster(t, time.Second)
	for round := range failovers() {
		owner := nodes.Owner(t, redisKey("lossy", "p", "r", "0"))
		replica := nodes.Replica(t, owner)
		loseWrites(t, round, func() redis.UniversalClient {
			return redis.NewClusterClient(&redis.ClusterOptions{Addrs: nodes.Addrs()})
		}, owner, []*redistest.Server{replica}, func() {
			owner.Kill()
			nodes.Promoted(t, replica)
		})
		owner.Restart()
		nodes.AwaitWhole(t)
	}
}
