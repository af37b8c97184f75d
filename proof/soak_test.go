package proof

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/faultproxy"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/redisstore"
)

// The rules of a soak. Their windows are short, so that there are many of them.
const (
	soakInstances = 3
	soakClients   = 6 // of each instance
	soakUsers     = 4 // each always requests more than its limit
	soakLimit     = 9
	soakSlots     = 6
	soakWindow    = time.Second
)

var (
	soakExact = limit.Named("exact", limit.Rule{Name: "log", Key: limit.ByUser, Limit: soakLimit, Window: soakWindow},
		limit.Rule{Name: "all", Key: limit.Everyone, Limit: 100_000, Window: soakWindow, Algorithm: limit.FixedWindow{}}).Overridable()
	soakBucket = limit.Named("bucket", limit.Rule{Name: "bucket", Key: limit.ByUser, Limit: soakLimit, Window: soakWindow,
		Algorithm: limit.TokenBucket{Burst: soakLimit}}).Overridable()
	soakHeld = limit.Named("slots", limit.Rule{Name: "slots", Key: limit.Everyone, Limit: soakSlots, Window: 2 * soakWindow,
		Algorithm: limit.Concurrency{}}).Overridable()
	soakLine = limit.Named("line", limit.Rule{Name: "line", Key: limit.Everyone, Limit: 50, Window: soakWindow,
		Algorithm: limit.Queue{Burst: 20}}).Overridable()
)

// soakPolicies are the rules, bound to one limiter.
type soakPolicies struct{ exact, bucket, held, line *limit.Policy }

func bindSoak(l *limit.Limiter) soakPolicies {
	return soakPolicies{bind(l, soakExact), bind(l, soakBucket), bind(l, soakHeld), bind(l, soakLine)}
}

// A soak is limiters that share a Redis which fails again and again, and clients that
// never stop.
type soak struct {
	t      *testing.T
	server *redistest.Server
	proxy  *faultproxy.Proxy
	direct *redis.Client

	stop    chan struct{}
	clients sync.WaitGroup

	trouble troubles
	changes troubles // of the rules
	changed int
	exact   [soakUsers]tally
	bucket  [soakUsers]tally
	line    tally
	held    peak

	asked, admitted, refused, cancelled, panics atomic.Int64
	modes                                       [core.ModeRefused + 1]atomic.Int64
	faults                                      map[string]int
}

// soakTime is the duration of the soak: LIMIT_SOAK, or 10 s.
func soakTime(t *testing.T) time.Duration {
	text := os.Getenv("LIMIT_SOAK")
	if text == "" {
		return 10 * time.Second
	}
	d := must.Get(time.ParseDuration(text))(t)
	return d
}

// TestSoak checks, for the duration LIMIT_SOAK, that no client ever gets an error, that
// no window admits more than is documented, and that nothing grows. With LIMIT_SOAK_STEADY,
// no rule changes meanwhile.
func TestSoak(t *testing.T) {
	duration := soakTime(t)
	s := &soak{t: t, server: redistest.Launch(t), stop: make(chan struct{}), faults: make(map[string]int)}
	s.proxy, s.direct = faultproxy.Start(t, s.server.Addr), s.server.Client()
	var limiters []*limit.Limiter
	before := files()
	t.Cleanup(func() { // the clients are closed by now
		most := before + 8 // direct has connections too
		redistest.Await(t, 10*time.Second, "connections to be closed", func() bool { return files() <= most })
		runtime.KeepAlive(limiters) // or a collection closes the files
	})
	for i := range soakUsers {
		// While versions change, the limit of the one and three windows of the other.
		const share = soakLimit / soakInstances
		s.exact[i] = tally{name: fmt.Sprint("exact window of user ", i),
			steady:   bounds{soakLimit, soakLimit + (soakInstances-1)*share},
			changing: bounds{2 * soakLimit, 2*soakLimit + (soakInstances-1)*2*share}}
		// A burst and a refill. Without the store twice that, and one more burst if it loses its data.
		s.bucket[i] = tally{name: fmt.Sprint("bucket of user ", i),
			steady:   bounds{2 * soakLimit, 5 * soakLimit},
			changing: bounds{2 * soakLimit, 6 * soakLimit}}
	}
	s.line = tally{name: "line",
		steady:   bounds{51, 2*(50+20) + soakInstances + 20},
		changing: bounds{51, 2*(50+20) + soakInstances + 2*20}}
	for range soakInstances {
		client := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: s.proxy.Addr()}))
		l := limit.New(redisstore.New(client, nil), &limit.Options{Instances: soakInstances})
		limiters = append(limiters, l)
		p := bindSoak(l)
		for range soakClients {
			s.clients.Go(func() { s.client(p) })
		}
	}
	if os.Getenv("LIMIT_SOAK_STEADY") == "" {
		s.clients.Go(func() { s.change(limiters) })
	}
	watched := make(chan usage)
	go s.watch(duration, watched)
	s.calm(5 * soakWindow)
	for end := time.Now().Add(duration - 5*soakWindow); time.Now().Before(end); {
		s.fault()
		s.calm(time.Duration(1+rand.IntN(7)) * soakWindow)
	}
	// A machine that stalls has troubles of its own, and a short soak may have had no
	// second without any.
	for end := time.Now().Add(time.Minute); !s.comparedQuiet() && time.Now().Before(end); {
		s.calm(soakWindow)
	}
	close(s.stop)
	s.clients.Wait()
	use := <-watched
	t.Logf("after %v: %s", duration, s.tell())
	t.Logf("faults: %v; %d changes of rules", s.faults, s.changed)
	for _, tally := range s.tallies() {
		t.Logf("%s: while the store answered, at most %d of %d, and %d of %d while rules changed; at any time %d of %d, and %d of %d; %d windows while it answered, %d of them while rules changed",
			tally.name, tally.most[0].quiet, tally.steady.quiet, tally.most[1].quiet, tally.changing.quiet,
			tally.most[0].any, tally.steady.any, tally.most[1].any, tally.changing.any, tally.quietWindows[0]+tally.quietWindows[1], tally.quietWindows[1])
		if tally.quietWindows[0] == 0 { // of another load, in a short soak: others test the limit itself
			assert.Empty(t, os.Getenv("LIMIT_SOAK"), "nothing was held against the limit itself")
			t.Logf("!! %s was not held against the limit itself: the machine stalled every %v", tally.name, settled)
		}
	}
	t.Logf("held at the same time: at most %d of %d while the store answered, %d of %d at any time",
		s.held.mostQuiet, soakSlots, s.held.mostAny, 2*soakSlots)
	if duration >= time.Minute { // in less, connections of one fault look like growth
		use.check(t)
	}
	require.Positive(t, s.modes[core.ModeLocal].Load(), "Redis never failed")
}

// comparedQuiet reports whether each tally has had a window while the store answered.
func (s *soak) comparedQuiet() bool {
	return !slices.ContainsFunc(s.tallies(), func(a *tally) bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.quietWindows[0] == 0
	})
}

func (s *soak) tallies() (all []*tally) {
	for i := range soakUsers {
		all = append(all, &s.exact[i], &s.bucket[i])
	}
	return append(all, &s.line)
}

func (s *soak) tell() string {
	return fmt.Sprintf("%d asked, %d admitted, %d refused, %d exact, %d remembered, %d local, %d cancelled, %d panics",
		s.asked.Load(), s.admitted.Load(), s.refused.Load(),
		s.modes[core.ModeExact].Load(), s.modes[core.ModeRemembered].Load(), s.modes[core.ModeLocal].Load(),
		s.cancelled.Load(), s.panics.Load())
}

// calm waits while nothing is broken.
func (s *soak) calm(d time.Duration) {
	select {
	case <-time.After(d):
	case <-s.stop:
	}
}

// client makes requests until the soak ends.
func (s *soak) client(p soakPolicies) {
	for {
		select {
		case <-s.stop:
			return
		case <-time.After(time.Duration(rand.IntN(20)) * time.Millisecond):
		}
		ctx, cancel := context.Background(), func() {}
		if rand.IntN(20) == 0 {
			ctx, cancel = context.WithTimeout(ctx, time.Duration(rand.IntN(20_000))*time.Microsecond)
		}
		s.request(ctx, p)
		cancel()
	}
}

// request makes one request.
func (s *soak) request(ctx context.Context, p soakPolicies) {
	user := rand.IntN(soakUsers)
	hot := map[string]string{"user": fmt.Sprint("user", user)}
	switch rand.IntN(5) {
	case 0:
		if d, ok := s.take(ctx, p.exact, hot); ok {
			s.exact[user].add(d.At)
		}
	case 1:
		if d, ok := s.take(ctx, p.bucket, hot); ok {
			s.bucket[user].add(d.At)
		}
	case 2:
		// There are always clients that make one request only.
		s.take(ctx, p.exact, map[string]string{"user": fmt.Sprint(rand.Uint64())})
	case 3:
		d, ok := s.take(ctx, p.line, nil)
		if ok && d.Wait(ctx) == nil {
			s.line.add(d.At.Add(d.Delay))
		}
	case 4:
		if d, ok := s.take(ctx, p.held, nil); ok {
			s.hold(d)
		}
	}
}

// hold holds a slot for a while, and sometimes panics.
func (s *soak) hold(d limit.Decision) {
	defer func() {
		if recover() != nil {
			s.panics.Add(1)
		}
	}()
	defer d.Release()
	s.held.add(1, &s.trouble)
	defer s.held.add(-1, &s.trouble)
	time.Sleep(time.Duration(rand.Int64N(int64(soakWindow / 4))))
	if rand.IntN(10) == 0 {
		panic("of a handler")
	}
}

func (s *soak) take(ctx context.Context, p *limit.Policy, keys map[string]string) (limit.Decision, bool) {
	s.asked.Add(1)
	d, err := p.Take(ctx, limit.Request{Keys: keys})
	if err != nil {
		if deadline, ok := ctx.Deadline(); !ok || time.Now().Before(deadline) {
			s.t.Errorf("an error to a client: %v", err)
		}
		s.cancelled.Add(1)
		return d, false
	}
	s.modes[d.Mode].Add(1)
	if d.Mode >= core.ModeLocal {
		now := time.Now()
		s.trouble.mark(now, now)
	}
	if !d.Allowed {
		s.refused.Add(1)
		return d, false
	}
	s.admitted.Add(1)
	return d, true
}
