package proof

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/faultproxy"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/guard"
	"github.com/routelimit/limit/stores/redisstore"
	"github.com/routelimit/limit/stores/storetest"
)

// failovers is the number of primaries to kill: one, or LIMIT_FAILOVERS.
func failovers() int {
	if n, err := strconv.Atoi(os.Getenv("LIMIT_FAILOVERS")); err == nil {
		return n
	}
	return 1
}

// A load takes from a store continuously, and records the results.
type load struct {
	mu        sync.Mutex
	decided   []time.Time // by Redis
	local     int         // by a guard, if there is one
	failed    int
	longest   time.Duration // of a call
	unwrapped error         // one that does not mean that the store is unavailable
	stop      chan struct{}
	done      sync.WaitGroup
}

var unlimited = []core.Charge{{Rule: "r", Key: "k", Cost: 1, Quota: core.Quota{Algorithm: core.FixedWindow, Limit: 1_000_000_000, Window: 3_600_000_000}}}

func startLoad(t *testing.T, store core.Store, policies ...string) *load {
	l := &load{stop: make(chan struct{})}
	for _, policy := range policies {
		for range 2 {
			l.done.Go(func() { l.take(store, policy) })
		}
	}
	t.Cleanup(l.end)
	return l
}

func (l *load) take(store core.Store, policy string) {
	for {
		select {
		case <-l.stop:
			return
		case <-time.After(time.Millisecond):
		}
		began := time.Now()
		d, err := core.Take(context.Background(), store, storetest.Of(policy, unlimited...))
		now := time.Now()
		l.mu.Lock()
		l.longest = max(l.longest, now.Sub(began))
		switch {
		case err == nil && d.Mode == core.ModeLocal:
			l.local++
		case err == nil:
			l.decided = append(l.decided, now)
		case errors.Is(err, core.ErrUnavailable):
			l.failed++
		default:
			l.unwrapped = err
		}
		l.mu.Unlock()
	}
}

func (l *load) end() {
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	l.done.Wait()
}

// after waits for a decision that was made after a time, and returns its time.
func (l *load) after(t *testing.T, at time.Time) (first time.Time) {
	redistest.Await(t, 90*time.Second, "a decision", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		for i := len(l.decided) - 1; i >= 0 && l.decided[i].After(at); i-- {
			first = l.decided[i]
		}
		return !first.IsZero()
	})
	return first
}

// report logs times, and asserts a bound on the longest, which is ten times as high where other
// tests run beside this one.
func report(t *testing.T, what string, times []time.Duration, bound time.Duration) {
	t.Helper()
	if failovers() == 1 {
		bound *= 10
	}
	slices.Sort(times)
	t.Logf("%s, %d times: least %v, median %v, most %v", what, len(times), times[0].Round(time.Millisecond),
		times[len(times)/2].Round(time.Millisecond), times[len(times)-1].Round(time.Millisecond))
	require.LessOrEqual(t, times[len(times)-1], bound)
}

// TestSentinelFailovers kills primaries under Sentinel, with a client that has
// the defaults of go-redis behind a guard.
func TestSentinelFailovers(t *testing.T) {
	sentinel := redistest.StartSentinel(t)
	client := redistest.Closing(t, redis.NewFailoverClient(&redis.FailoverOptions{MasterName: sentinel.Name, SentinelAddrs: sentinel.Addrs}))
	var watchers []*redis.SentinelClient
	for _, addr := range sentinel.Addrs {
		watchers = append(watchers, redis.NewSentinelClient(&redis.Options{Addr: addr}))
		defer watchers[len(watchers)-1].Close()
	}
	load := startLoad(t, guard.New(redisstore.New(client, nil), nil), "p")
	load.after(t, time.Now())
	var outages, fromRole, fromSentinel []time.Duration
	for range failovers() {
		killed := time.Now()
		dead, primary, promoted := failover(t, sentinel)
		// The client asks one of them, which may be the last one to notice.
		named := redistest.Await(t, 30*time.Second, "all Sentinels name the new primary", func() bool {
			for _, watcher := range watchers {
				addr, err := watcher.GetMasterAddrByName(t.Context(), sentinel.Name).Result()
				if err != nil || addr[0]+":"+addr[1] != primary.Addr {
					return false
				}
			}
			return true
		})
		first := load.after(t, promoted)
		outages = append(outages, first.Sub(killed))
		fromRole = append(fromRole, first.Sub(promoted))
		fromSentinel = append(fromSentinel, max(0, first.Sub(named)))
		rejoin(t, sentinel, dead, primary)
	}
	load.end()
	require.NoError(t, load.unwrapped)
	report(t, "from the kill to the first decision by Redis", outages, 30*time.Second)
	report(t, "from the promotion to the first decision by Redis", fromRole, 5*time.Second)
	report(t, "from when all Sentinels name the new primary to the first decision by Redis", fromSentinel, time.Second)
	t.Logf("%d decisions by Redis, %d local, %d failed; the longest took %v", len(load.decided), load.local, load.failed, load.longest)
	require.Zero(t, load.failed)
	lostUnderSentinel(t, sentinel)
}

// lostUnderSentinel loses every fifth reply to a client of Sentinel.
func lostUnderSentinel(t *testing.T, sentinel *redistest.Sentinel) {
	primary := sentinel.AwaitReplicas(t)
	proxy := faultproxy.Start(t, primary.Addr)
	proxy.Break(func(c faultproxy.Command) faultproxy.Fault {
		if c.Name == "evalsha" && c.Number%5 == 0 {
			return faultproxy.Fault{Kind: faultproxy.LoseReply}
		}
		return faultproxy.Fault{}
	})
	client := redistest.Closing(t, redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: sentinel.Name, SentinelAddrs: sentinel.Addrs,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if addr == primary.Addr {
				addr = proxy.Addr()
			}
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		},
	}))
	store := redisstore.New(client, &redisstore.Options{Timeout: 10 * time.Second})
	asked, decided := int64(1000), int64(0)
	for range asked {
		if _, err := core.Take(t.Context(), store, storetest.Of("lost", unlimited...)); err == nil {
			decided++
		}
	}
	peek := []core.Charge{unlimited[0]}
	peek[0].Cost = 0
	d := must.Get(core.Take(t.Context(), redisstore.New(primary.Client(), &redisstore.Options{Timeout: time.Minute}), storetest.Of("lost", peek...)))(t)
	counted := peek[0].Quota.Limit - d.Outcomes()[0].Remaining
	t.Logf("under Sentinel, replies lost: asked %d, decided %d, counted %d", asked, decided, counted)
	require.LessOrEqual(t, counted, asked)
	require.Less(t, decided, asked)
}

// TestClusterKills kills primaries of a Cluster. Behind the guard is a client with the
// defaults of go-redis, which alone takes up to a minute to notice.
func TestClusterKills(t *testing.T) {
	nodes := redistest.StartCluster(t, time.Second)
	client := redistest.Closing(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: nodes.Addrs()}))
	load := startLoad(t, guard.New(redisstore.New(client, nil), nil), "p")
	load.after(t, time.Now())
	var outages, fromRole []time.Duration
	for i := range failovers() {
		owner := nodes.Owner(t, redisKey("limit", "p", "r", "k"))
		replica := nodes.Replica(t, owner)
		killed := time.Now()
		if i%2 == 1 { // a paused machine closes no connections
			owner.Pause()
		} else {
			owner.Kill()
		}
		promoted := nodes.Promoted(t, replica)
		first := load.after(t, promoted)
		outages = append(outages, first.Sub(killed))
		fromRole = append(fromRole, first.Sub(promoted))
		owner.Restart()
		nodes.AwaitWhole(t)
	}
	load.end()
	require.NoError(t, load.unwrapped)
	report(t, "from the kill to the first decision by Redis", outages, 30*time.Second)
	report(t, "from the promotion to the first decision by Redis", fromRole, time.Second)
	t.Logf("%d decisions by Redis, %d local, %d failed; the longest took %v", len(load.decided), load.local, load.failed, load.longest)
	require.Zero(t, load.failed)
}

// failover kills the primary, waits for the next one, and returns both and the time at which it
// took over.
func failover(t *testing.T, s *redistest.Sentinel) (dead, primary *redistest.Server, at time.Time) {
	t.Helper()
	dead = s.Primary(t)
	require.NotNil(t, dead, "there is no primary")
	dead.Kill()
	at = redistest.Await(t, 30*time.Second, "a new primary", func() bool {
		primary = s.Primary(t)
		return primary != nil
	})
	return dead, primary, at
}

// rejoin restarts a dead node as a replica of the primary, and waits until every sentinel is done
// with the last failover.
func rejoin(t *testing.T, s *redistest.Sentinel, dead, primary *redistest.Server) {
	t.Helper()
	dead.Restart("--replicaof", strings.Replace(primary.Addr, ":", " ", 1))
	s.AwaitReplicas(t)
	for _, addr := range s.Addrs {
		s.Await(t, addr, "a sentinel that knows two live replicas", func(sentinel *redis.SentinelClient) bool {
			replicas, err := sentinel.Replicas(t.Context(), s.Name).Result()
			live := 0
			for _, replica := range replicas {
				if replica["flags"] == "slave" && replica["master-link-status"] == "ok" {
					live++
				}
			}
			return err == nil && live == 2
		})
	}
}
