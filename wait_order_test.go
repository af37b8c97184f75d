package limit

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/stores/memstore"
)

func TestLimiterWaitInOrder(t *testing.T) {
	for _, text := range []string{
		"1/100ms per user", "10/1s per user queue", "10/1s per user token-bucket burst 1", "10/1s per user leaky-bucket burst 1",
		"1/100ms per user fixed-window",
	} {
		synctest.Test(t, func(t *testing.T) {
			store := &calls{Store: memstore.New(nil)}
			w := newWaits(t, store, append(MustParse(text).Declared(), Global(time.Hour, 1000))...)
			var all []*wait
			var at []time.Duration
			for n := range 50 {
				all = append(all, w.add("alice", 1))
				at = append(at, time.Duration(n)*100*time.Millisecond)
			}
			assert.EqualValues(t, 1, store.n.Load(), "a waiter behind others does not ask: %s", text)
			w.end()
			admitted(t, at, all...)
			assert.EqualValues(t, 50, store.n.Load(), "the first refusal is known, and each asks when it is to be admitted: %s", text)
		})
	}
}

// TestLimiterWaitShared checks the order where a key that all share refuses,
// and others refuse some of them for longer.
func TestLimiterWaitShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaits(t, nil, PerUser(10*time.Second, 1), Global(time.Second, 1))
		const s = time.Second
		first := w.add("alice", 1)
		second := w.add("alice", 1) // waits for alice alone
		carol := w.add("carol", 1)  // waits for all
		dave := w.add("dave", 1)
		again := w.add("carol", 1) // stands behind dave, until it sees that carol has to wait
		eve := w.add("eve", 1)     // need not wait for that
		w.end()
		admitted(t, []time.Duration{0, 10 * s, 1 * s, 2 * s, 11 * s, 3 * s}, first, second, carol, dave, again, eve)
	})
}

// TestLimiterWaitEarlierTicket has one who came earlier join a line in which
// others stand already, while others stand behind it in the line that it leaves.
func TestLimiterWaitEarlierTicket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaits(t, nil, PerUser(1500*time.Millisecond, 1), Global(time.Second, 1))
		const ms = time.Millisecond
		alice := []*wait{w.add("alice", 1), w.add("alice", 1), w.add("alice", 1)}
		var others []*wait
		for _, user := range []string{"b", "c", "d", "e"} {
			others = append(others, w.add(user, 1))
		}
		w.end()
		// The second could go at 1.5 s, but b has taken until 2 s; the third at
		// 3.5 s, but c has taken until 4 s.
		admitted(t, []time.Duration{0, 2000 * ms, 4000 * ms}, alice...)
		admitted(t, []time.Duration{1000 * ms, 3000 * ms, 5000 * ms, 6000 * ms}, others...)
	})
}

// TestLimiterWaitLarge has small costs come without end beside a large one.
func TestLimiterWaitLarge(t *testing.T) {
	for _, key := range []KeyResolver{Everyone, ByUser} {
		synctest.Test(t, func(t *testing.T) {
			w := newWaits(t, nil, Per(key, time.Second, 10))
			for range 20 {
				w.add("alice", 1)
				time.Sleep(50 * time.Millisecond)
			}
			large := w.add("alice", 10)
			began := time.Since(w.start)
			for range 100 {
				w.add("alice", 1)
				time.Sleep(50 * time.Millisecond)
			}
			w.end()
			require.NoError(t, large.err)
			assert.LessOrEqual(t, large.took-began, 2*time.Second, "10 in front of it, and its own")
		})
	}
}

// TestLimiterWaitLargeAmongUsers has users each wait for a key of their own,
// whose time comes just when there is one more unit of the key that all share.
// A large cost waits for five of these.
func TestLimiterWaitLargeAmongUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaits(t, nil, PerUser(time.Second, 5), Global(time.Second, 20))
		users := []string{"a", "b", "c", "d"}
		for _, user := range users {
			for range 5 {
				w.add(user, 1)
				time.Sleep(50 * time.Millisecond)
			}
			for range 10 { // wait for the key of the user
				w.add(user, 1)
			}
		}
		large := w.add("z", 5)
		for range 20 {
			for _, user := range users {
				w.add(user, 1)
			}
		}
		w.end()
		// 40 came before it and waited, 20 a second, and it needs five more.
		admitted(t, []time.Duration{3200 * time.Millisecond}, large)
	})
}

// TestLimiterWaitSideBySide has a store that is slower than the rule: waits that
// asked it one after the other would take five times as long as the rule allows.
func TestLimiterWaitSideBySide(t *testing.T) {
	for _, rules := range [][]Rule{
		{Global(100*time.Millisecond, 100)},
		{Global(100*time.Millisecond, 100), Global(time.Hour, 10_000)},
		{PerUser(time.Hour, 1), Global(100*time.Millisecond, 100)},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := &scripted{Store: memstore.New(nil), before: func(int64) error {
				time.Sleep(5 * time.Millisecond)
				return nil
			}}
			w := newWaits(t, store, rules...)
			var all []*wait
			for i := range 1000 {
				all = append(all, w.add(strconv.Itoa(i), 1))
				if i == 99 || i == 100 {
					time.Sleep(5 * time.Millisecond) // until these have been admitted, and one refused
				}
			}
			w.end()
			var first, last [10]time.Duration // of each window's hundred
			for i, got := range all {
				require.NoError(t, got.err)
				at := got.d.At.Sub(w.start)
				if i%100 == 0 {
					first[i/100] = at
				}
				first[i/100], last[i/100] = min(first[i/100], at), max(last[i/100], at)
			}
			for i := range 9 {
				assert.Less(t, last[i], first[i+1], "in order")
			}
			assert.LessOrEqual(t, time.Since(w.start), 1200*time.Millisecond)
			assert.LessOrEqual(t, store.n.Load(), int64(1100))
		})
	}
}

// TestLimiterWaitOvertakenByOthers has another process take what those who ask
// side by side were told of: they stand in line again, in their order.
func TestLimiterWaitOvertakenByOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := memstore.New(nil)
		store := &scripted{Store: memory, before: func(int64) error {
			time.Sleep(5 * time.Millisecond)
			return nil
		}}
		w := newWaits(t, store, Global(time.Second, 10))
		w.take("", 10)
		w.add("", 1)
		time.Sleep(5 * time.Millisecond) // it stands in line now
		large, small := w.add("", 5), w.add("", 1)
		time.Sleep(time.Until(w.start.Add(1012 * time.Millisecond))) // both ask
		d := must.Get(mustPolicy(New(memory, nil), w.rules).Take(t.Context(), Request{Cost: 9}))(t)
		require.True(t, d.Allowed)
		w.end()
		require.NoError(t, large.err)
		require.NoError(t, small.err)
		// A unit for the small one comes back before those for the large one.
		assert.Less(t, large.took, small.took)
		assert.GreaterOrEqual(t, large.took, 2012*time.Millisecond)
	})
}

// TestLimiterWaitManyCancels lets many come and go, and then checks that the
// rules have held in every window, and that nothing holds up those who stay.
func TestLimiterWaitManyCancels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const window, perUser, global = time.Second, 20, 70
		limiter := New(nil, nil)
		rules := Named("p", PerUser(window, perUser), Global(window, global))
		users := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
		type admission struct {
			user string
			n    int64
			at   time.Time
		}
		var mu sync.Mutex
		var got []admission
		var stayed, gone int
		var done sync.WaitGroup
		for i := range 1000 {
			random := rand.New(rand.NewPCG(1, uint64(i)))
			done.Go(func() {
				time.Sleep(time.Duration(random.Int64N(int64(3 * time.Second))))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				patience := time.Duration(random.Int64N(int64(8 * time.Second)))
				switch random.IntN(3) {
				case 0:
					time.AfterFunc(patience, cancel)
				case 1:
					ctx, cancel = context.WithTimeout(ctx, patience)
					defer cancel()
				}
				user, n := users[random.IntN(len(users))], 1+random.Int64N(5)
				d, err := mustPolicy(limiter, rules).Wait(ctx, Request{Keys: map[string]string{"user": user}, Cost: n})
				mu.Lock()
				defer mu.Unlock()
				var refused *RefusedError
				switch {
				case err == nil:
					got = append(got, admission{user, n, d.At})
					stayed++
				case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.As(err, &refused):
					gone++
				default:
					t.Error(err)
				}
			})
		}
		done.Wait()
		assert.True(t, limiter.engine.Queues.Len() == 0)
		require.Greater(t, stayed, 333)
		require.Greater(t, gone, 100)

		slices.SortFunc(got, func(a, b admission) int { return a.at.Compare(b.at) })
		var units int64
		for i, end := range got {
			units += end.n
			var all, of int64
			for j := i; j >= 0 && end.at.Sub(got[j].at) < window; j-- {
				all += got[j].n
				if got[j].user == end.user {
					of += got[j].n
				}
			}
			require.LessOrEqual(t, all, int64(global))
			require.LessOrEqual(t, of, int64(perUser))
		}
		// A large one in front may leave a few units of a window unused, and no more.
		last := got[len(got)-1].at.Sub(got[0].at)
		assert.GreaterOrEqual(t, units, int64(last/window)*(global-5)*8/10, "%d units in %v", units, last)

		time.Sleep(window)
		w := &waits{t: t, limiter: limiter, rules: rules, start: time.Now()}
		var after []*wait
		var at []time.Duration
		for i := range 60 {
			after = append(after, w.add("a", 1))
			at = append(at, time.Duration(i/perUser)*window)
		}
		w.end()
		admitted(t, at, after...)
	})
}
