package proof

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
)

// A waiting is one call of Wait, as rapid draws it, and its outcome.
type waiting struct {
	user     string
	cost     int64
	arrives  time.Duration // since the start
	gives    time.Duration // up; 0 for never
	admitted time.Duration // -1 for never
}

// drawWaits draws calls. No two of them act at the same time, other than at the time of
// an admission, so that there is one correct outcome. Calls begin at full milliseconds,
// and each gives up at its own microsecond.
func drawWaits(t *rapid.T, users []string, most int64) []*waiting {
	var list []*waiting
	now := time.Duration(0)
	for i := range rapid.IntRange(1, 30).Draw(t, "waits") {
		now += time.Duration(rapid.Int64Range(0, 150).Draw(t, "gap")) * time.Millisecond
		w := &waiting{user: rapid.SampledFrom(users).Draw(t, "user"), arrives: now,
			cost: rapid.Int64Range(1, most).Draw(t, "cost"), admitted: -1}
		if patience := rapid.Int64Range(-1000, 1500).Draw(t, "patience"); patience >= 0 {
			w.gives = now + time.Duration(patience)*time.Millisecond + time.Duration(500+i)*time.Microsecond
		}
		list = append(list, w)
	}
	return list
}

// runWaits makes the calls, in a bubble of synctest, and fills in the outcomes.
func runWaits(t *rapid.T, limiter *limit.Limiter, set limit.RuleSet, list []*waiting) {
	policy, start := bind(limiter, set), time.Now()
	var done sync.WaitGroup
	for _, w := range list {
		time.Sleep(time.Until(start.Add(w.arrives)))
		synctest.Wait()
		done.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if w.gives > 0 {
				defer time.AfterFunc(time.Until(start.Add(w.gives)), cancel).Stop()
			}
			d, err := policy.Wait(ctx, limit.Request{Keys: map[string]string{"user": w.user}, Cost: w.cost})
			switch {
			case err == nil:
				w.admitted = d.At.Sub(start)
			case !errors.Is(err, context.Canceled):
				t.Error(err)
			}
		})
		synctest.Wait()
	}
	done.Wait()
}

// used returns the units that calls took in the window that ends at a time.
func used(list []*waiting, end, window time.Duration) (units int64) {
	for _, w := range list {
		if w.admitted >= 0 && w.admitted <= end && end-w.admitted < window {
			units += w.cost
		}
	}
	return units
}

// TestWaitOneKey compares waits for one key with their definition: each is admitted as
// soon as all earlier ones were admitted or have given up, and there is room.
func TestWaitOneKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		rapid.Check(bubble{t}, func(t *rapid.T) {
			n++
			most := rapid.Int64Range(1, 6).Draw(t, "limit")
			window := time.Duration(rapid.Int64Range(1, 10).Draw(t, "window")) * 100 * time.Millisecond
			list := drawWaits(t, []string{""}, most)
			runWaits(t, limit.New(nil, nil), limit.Named(fmt.Sprint("p", n), limit.Global(window, most)), list)

			var right []*waiting
			free := time.Duration(0) // when those before have gone
			for i, w := range list {
				from := max(free, w.arrives)
				times := []time.Duration{from}
				for _, before := range right {
					if end := before.admitted + window; before.admitted >= 0 && end > from {
						times = append(times, end)
					}
				}
				at := slices.MinFunc(times, func(a, b time.Duration) int {
					fitsA, fitsB := used(right, a, window)+w.cost <= most, used(right, b, window)+w.cost <= most
					switch {
					case fitsA && !fitsB:
						return -1
					case fitsB && !fitsA:
						return 1
					}
					return int(a - b)
				})
				want := &waiting{cost: w.cost, admitted: at}
				if w.gives > 0 && w.gives < at {
					want.admitted, at = -1, max(free, w.gives)
				}
				free = max(free, at)
				right = append(right, want)
				if w.admitted != want.admitted {
					t.Fatalf("wait %d was admitted at %v, want %v", i, w.admitted, want.admitted)
				}
			}
		})
	})
}

// TestWaitManyKeys checks waits with a rule per user and a rule that all share. Both rules
// hold in any window, every waiter that does not give up is admitted, and no waiter
// overtakes another one with the same keys. The exception is two calls at one instant,
// if a third with another key took what was left between them.
func TestWaitManyKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		rapid.Check(bubble{t}, func(t *rapid.T) {
			n++
			perUser, global := rapid.Int64Range(1, 4).Draw(t, "limit per user"), rapid.Int64Range(1, 6).Draw(t, "limit of all")
			userWindow := time.Duration(rapid.Int64Range(1, 10).Draw(t, "window per user")) * 100 * time.Millisecond
			globalWindow := time.Duration(rapid.Int64Range(1, 10).Draw(t, "window of all")) * 100 * time.Millisecond
			set := limit.Named(fmt.Sprint("p", n), limit.PerUser(userWindow, perUser),
				limit.Rule{Name: "all", Key: limit.Everyone, Limit: global, Window: globalWindow})
			list := drawWaits(t, []string{"a", "b", "c"}, min(perUser, global))
			runWaits(t, limit.New(nil, nil), set, list)

			of := make(map[string][]*waiting)
			for i, w := range list {
				if w.admitted < 0 {
					if w.gives == 0 {
						t.Fatalf("wait %d was never admitted", i)
					}
					continue
				}
				if w.gives > 0 && w.admitted > w.gives {
					t.Fatalf("wait %d was admitted at %v, but had given up at %v", i, w.admitted, w.gives)
				}
				of[w.user] = append(of[w.user], w)
				for j, before := range list[:i] {
					if before.user == w.user && before.admitted > w.admitted && !slices.ContainsFunc(list[j+1:], func(third *waiting) bool {
						return third.user != w.user && third.admitted == w.admitted
					}) {
						t.Fatalf("wait %d overtook %d, which has the same keys", i, j)
					}
				}
			}
			for i, w := range list {
				if all := used(list, w.admitted, globalWindow); w.admitted >= 0 && all > global {
					t.Fatalf("wait %d: %d in the window of all, of %d", i, all, global)
				}
				if own := used(of[w.user], w.admitted, userWindow); w.admitted >= 0 && own > perUser {
					t.Fatalf("wait %d: %d in the window of the user, of %d", i, own, perUser)
				}
			}
		})
	})
}

// TestWaitOnRedis runs two limiters, with a connection each, that wait for the same keys.
// Some callers give up at any moment. No window holds more than the limit, and nothing
// is taken without a caller that was admitted.
func TestWaitOnRedis(t *testing.T) {
	client := redistest.Client(t)
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	const window, most, total = 100 * time.Millisecond, 20, 100_000
	set := limit.Named("p", limit.Global(window, most), limit.Global(time.Hour, total))
	var mu sync.Mutex
	var times []int64
	var gone int
	var done sync.WaitGroup
	end := time.Now().Add(proofTime(2 * time.Second))
	for range 2 {
		options := *client.Options()
		own := redistest.Closing(t, redis.NewClient(&options))
		policy := bind(limit.New(unhurried(own, 1), nil), set)
		for i := range 30 {
			done.Go(func() {
				for k := i; time.Now().Before(end); k++ {
					ctx, cancel := context.WithCancel(t.Context())
					if k%3 == 0 {
						time.AfterFunc(time.Duration(k%7)*10*time.Millisecond, cancel)
					}
					d, err := policy.Wait(ctx, limit.Request{})
					cancel()
					mu.Lock()
					switch {
					case err == nil:
						times = append(times, d.At.UnixMicro())
					case errors.Is(err, context.Canceled):
						gone++
					default:
						t.Error(err)
					}
					mu.Unlock()
				}
			})
		}
	}
	done.Wait()
	slices.Sort(times)
	span := time.Duration(times[len(times)-1]-times[0]) * time.Microsecond
	inWindow := mostIn(times, window.Microseconds())
	t.Logf("%d admitted in %v, %d gave up; most in any window of %v: %d of %d", len(times), span, gone, window, inWindow, most)
	require.LessOrEqual(t, inWindow, most)
	require.Greater(t, len(times), int(span/window)*most/2)
	require.Positive(t, gone)

	d := must.Get(bind(limit.New(unhurried(client, 1), nil), set).Peek(t.Context(), limit.Request{}))(t)
	require.EqualValues(t, total-len(times), slices.Collect(d.Rules())[1].Remaining)
}
