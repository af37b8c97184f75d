package limit

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/memstore"
)

// A wait is a call of WaitN under way, of a bubble of synctest.
type wait struct {
	cancel context.CancelFunc
	d      Decision
	err    error
	took   time.Duration // since the bubble began
}

// waits starts calls of WaitN in the order in which it is called.
type waits struct {
	t       *testing.T
	limiter *Limiter
	rules   RuleSet
	start   time.Time
	done    sync.WaitGroup
}

func newWaits(t *testing.T, store Store, rules ...Rule) *waits {
	return &waits{t: t, limiter: New(store, nil), rules: Named("p", rules...), start: time.Now()}
}

func (w *waits) within(ctx context.Context, user string, n int64) *wait {
	ctx, cancel := context.WithCancel(ctx)
	result := &wait{cancel: cancel}
	w.done.Go(func() {
		defer cancel()
		result.d, result.err = w.limiter.WaitN(ctx, w.rules, Keys{"user": user}, n)
		result.took = time.Since(w.start)
	})
	synctest.Wait() // it has been admitted, or stands in a line
	return result
}

func (w *waits) add(user string, n int64) *wait { return w.within(w.t.Context(), user, n) }

func (w *waits) take(user string, n int64) Decision {
	d, err := w.limiter.TakeN(w.t.Context(), w.rules, Keys{"user": user}, n)
	require.NoError(w.t, err)
	return d
}

// end waits for all, and checks that nothing of them is remembered.
func (w *waits) end() {
	w.done.Wait()
	assert.Empty(w.t, w.limiter.lines.of)
	assert.Zero(w.t, w.limiter.lines.waiting.Load())
}

// admitted checks that waits were admitted at the times given.
func admitted(t *testing.T, at []time.Duration, waits ...*wait) {
	t.Helper()
	for i, w := range waits {
		require.NoError(t, w.err, i)
		assert.True(t, w.d.Allowed, i)
		assert.Equal(t, at[i], w.took, i)
	}
}

// calls counts the calls of a store.
type calls struct {
	Store
	n atomic.Int64
}

func (c *calls) Take(ctx context.Context, policy string, charges []core.Charge) (core.Decision, error) {
	c.n.Add(1)
	return c.Store.Take(ctx, policy, charges)
}

func TestLimiterWaitInOrder(t *testing.T) {
	for _, text := range []string{
		"1/100ms per user", "10/1s per user queue", "10/1s per user token-bucket burst 1", "10/1s per user leaky-bucket burst 1",
		"1/100ms per user fixed-window",
	} {
		synctest.Test(t, func(t *testing.T) {
			store := &calls{Store: memstore.New(nil)}
			w := newWaits(t, store, append(MustParse(text).rules, Global(time.Hour, 1000))...)
			var all []*wait
			var at []time.Duration
			for i := range 50 {
				all = append(all, w.add("alice", 1))
				at = append(at, time.Duration(i)*100*time.Millisecond)
			}
			assert.EqualValues(t, 2, store.n.Load(), "who stands behind others does not ask: %s", text)
			w.end()
			admitted(t, at, all...)
			assert.EqualValues(t, 51, store.n.Load(), "one refusal, and each asks when it is to be admitted: %s", text)
		})
	}
}

// TestLimiterWaitTogether has several admitted at a time.
func TestLimiterWaitTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaits(t, nil, PerUser(time.Second, 5))
		var all []*wait
		var at []time.Duration
		for i := range 50 {
			all = append(all, w.add("alice", 1))
			at = append(at, time.Duration(i/5)*time.Second)
		}
		w.end()
		admitted(t, at, all...)
	})
}

func TestLimiterWaitKeysApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaits(t, nil, PerUser(time.Second, 1), Global(time.Second, 100))
		var alice, bob []*wait
		var at []time.Duration
		for i := range 10 {
			alice = append(alice, w.add("alice", 1))
			at = append(at, time.Duration(i)*time.Second)
		}
		for range 10 {
			bob = append(bob, w.add("bob", 1))
		}
		w.end()
		admitted(t, at, alice...)
		admitted(t, at, bob...)
	})
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

func TestLimiterWaitAllOrNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaits(t, nil, PerUser(time.Minute, 1), Global(time.Hour, 10))
		w.take("alice", 1)
		var all []*wait
		for range 5 {
			all = append(all, w.add("alice", 1))
		}
		left := func() int64 {
			d, err := w.limiter.Peek(t.Context(), w.rules, Keys{"user": "bob"})
			require.NoError(t, err)
			return d.Rules()[1].Remaining
		}
		assert.EqualValues(t, 9, left(), "who waits holds nothing")
		time.Sleep(90 * time.Second)
		assert.EqualValues(t, 8, left())
		for _, w := range all[1:] {
			w.cancel()
		}
		w.end()
		assert.EqualValues(t, 8, left())
		time.Sleep(10 * time.Minute)
		assert.EqualValues(t, 8, left(), "a wait that has ended takes nothing")
		for _, w := range all[1:] {
			assert.Equal(t, context.Canceled, w.err)
			assert.Equal(t, Decision{}, w.d)
		}
	})
}

func TestLimiterWaitCancelled(t *testing.T) {
	const ms = time.Millisecond
	for _, test := range []struct {
		name    string
		costs   []int64 // of those who stand in line for 5 a second, of which 3 are taken at 0
		cancel  int     // which of them gives up at 300 ms
		expects []time.Duration
	}{
		{"the first; the next asks for as much", []int64{5, 5}, 0, []time.Duration{300 * ms, 1000 * ms}},
		{"the first; the next asks for less", []int64{5, 2, 1}, 0, []time.Duration{300 * ms, 300 * ms, 1000 * ms}},
		{"the first; the next asks for more", []int64{4, 5}, 0, []time.Duration{300 * ms, 1000 * ms}},
		{"the middle", []int64{5, 5, 5}, 1, []time.Duration{1000 * ms, 300 * ms, 2000 * ms}},
		{"the last", []int64{5, 2, 5}, 2, []time.Duration{1000 * ms, 2000 * ms, 300 * ms}},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWaits(t, nil, PerUser(time.Second, 5))
			w.take("alice", 3)
			var all []*wait
			for _, cost := range test.costs {
				all = append(all, w.add("alice", cost))
			}
			time.Sleep(300 * ms)
			all[test.cancel].cancel()
			w.end()
			for i, got := range all {
				assert.Equal(t, test.expects[i], got.took, "%s: %d", test.name, i)
				assert.Equal(t, i == test.cancel, got.err != nil, test.name)
			}
			assert.ErrorIs(t, all[test.cancel].err, context.Canceled)
		})
	}
}

func TestLimiterWaitDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &calls{Store: memstore.New(nil)}
		w := newWaits(t, store, PerUser(time.Second, 1), Global(time.Hour, 100))
		w.take("alice", 1)
		within := func(patience time.Duration) *wait {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			t.Cleanup(cancel)
			return w.within(ctx, "alice", 1)
		}
		tooEarly := func(got *wait) {
			t.Helper()
			var refused *RefusedError
			require.ErrorAs(t, got.err, &refused)
			assert.Zero(t, got.took, "at once")
			assert.False(t, refused.Decision.Allowed)
			assert.Equal(t, time.Second, refused.Decision.RetryAfter)
			assert.Equal(t, []string{"per-user-1s"}, refused.Decision.Refusing())
			assert.EqualValues(t, 99, refused.Decision.Rules()[1].Remaining)
			assert.EqualError(t, got.err, "limit: refused by per-user-1s, retry after 1s")
		}
		tooEarly(within(999 * time.Millisecond))
		tooEarly(within(time.Second)) // ctx has ended then
		assert.EqualValues(t, 3, store.n.Load())
		first := within(time.Second + 1)
		tooEarly(within(999 * time.Millisecond)) // nobody behind the first is sooner than it
		second := within(1500 * time.Millisecond)
		third := within(2500 * time.Millisecond)
		w.end()
		admitted(t, []time.Duration{time.Second, 2 * time.Second}, first, third)
		// When the first has gone, it is certain that there will be nothing in time.
		assert.ErrorAs(t, second.err, new(*RefusedError))
		assert.Equal(t, time.Second, second.took)
	})
}

// TestLimiterWaitDeadlineBehindOthers checks what is said to who stands behind
// others, and has not been refused itself.
func TestLimiterWaitDeadlineBehindOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaits(t, nil, PerUser(time.Second, 5), Global(time.Minute, 8), PerUser(time.Hour, 100))
		w.take("alice", 5)
		first := w.add("alice", 1)
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		var refused *RefusedError
		require.ErrorAs(t, w.within(ctx, "alice", 4).err, &refused)
		assert.Equal(t, []string{"per-user-1s", "global-1m"}, refused.Decision.Refusing())
		assert.Equal(t, time.Minute, refused.Decision.RetryAfter)
		assert.EqualValues(t, 95, refused.Decision.Rules()[2].Remaining)
		w.end()
		admitted(t, []time.Duration{time.Second}, first)
	})
}

// TestLimiterWaitDeadlineBehindLarge checks that who asks for less than the one
// in front of it waits: that one may give up.
func TestLimiterWaitDeadlineBehindLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaits(t, nil, PerUser(time.Second, 5))
		w.take("alice", 3)
		large := w.add("alice", 5)
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		lucky := w.within(ctx, "alice", 1)
		unlucky := w.within(ctx, "alice", 2)
		time.Sleep(100 * time.Millisecond)
		large.cancel()
		w.end()
		admitted(t, []time.Duration{100 * time.Millisecond}, lucky)
		assert.ErrorAs(t, unlucky.err, new(*RefusedError))
		assert.Equal(t, 100*time.Millisecond, unlucky.took)
	})
	synctest.Test(t, func(t *testing.T) {
		w := newWaits(t, nil, PerUser(time.Second, 5))
		w.take("alice", 3)
		large := w.add("alice", 5)
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		small := w.within(ctx, "alice", 1)
		w.end()
		assert.Equal(t, context.DeadlineExceeded, small.err)
		assert.Equal(t, 500*time.Millisecond, small.took)
		admitted(t, []time.Duration{time.Second}, large)
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

func TestLimiterWaitQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaits(t, nil, oneASecond.rules...)
		var all []*wait
		var at []time.Duration
		for i := range 8 {
			all = append(all, w.add("", 1))
			at = append(at, time.Duration(i)*time.Second)
		}
		assert.EqualValues(t, 4, w.limiter.lines.waiting.Load(), "the others have a turn")
		w.end()
		admitted(t, at, all...)

		w.add("", 1)
		turn := w.add("", 1)
		turn.cancel()
		w.end()
		assert.Equal(t, context.Canceled, turn.err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		assert.ErrorAs(t, w.within(ctx, "", 1).err, new(*RefusedError))
	})
}

func TestLimiterWaitMistakes(t *testing.T) {
	limiter := New(nil, nil)
	rules := Named("mails", PerUser(time.Hour, 5), Global(time.Hour, 100))
	alice := Keys{"user": "alice"}
	for _, test := range []struct {
		n    int64
		says string
	}{
		{-1, "limit: cost -1: write 0 or more"},
		{6, `limit: rule "5/1h per user": cost 6: it never has room for more than 5: write less`},
		{math.MaxInt64, `limit: rule "5/1h per user": cost 281474976710655: it never has room for more than 5: write less`},
	} {
		_, err := limiter.WaitN(t.Context(), rules, alice, test.n)
		assert.EqualError(t, err, test.says)
		assert.ErrorAs(t, err, new(*RuleError))
	}
	_, err := limiter.Wait(t.Context(), rules, nil)
	assert.ErrorContains(t, err, `no key "user"`)
	_, err = limiter.WaitN(t.Context(), Rules(Global(time.Hour, 1)), nil, 1)
	assert.ErrorContains(t, err, "outside HTTP a policy needs a name")
	_, err = limiter.Wait(t.Context(), Named("costly", Rule{Key: Everyone, Limit: 5, Window: time.Hour, Cost: otherCost}), nil)
	assert.ErrorContains(t, err, "its Cost asks an HTTP request")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = limiter.Wait(ctx, rules, alice)
	assert.Equal(t, context.Canceled, err)
	d, err := limiter.WaitN(t.Context(), rules, alice, 5)
	require.NoError(t, err)
	assert.EqualValues(t, 95, d.Rules()[1].Remaining, "the wait that had ended took nothing")
	d, err = limiter.WaitN(t.Context(), rules, alice, 0)
	require.NoError(t, err)
	assert.True(t, d.Allowed, "a cost of 0 takes nothing, and is admitted")
}

// scripted is a store whose calls a test answers or delays.
type scripted struct {
	Store
	n      atomic.Int64
	before func(call int64) error
}

func (s *scripted) Take(ctx context.Context, policy string, charges []core.Charge) (core.Decision, error) {
	if err := s.before(s.n.Add(1)); err != nil {
		return core.Decision{}, err
	}
	return s.Store.Take(ctx, policy, charges)
}

func TestLimiterWaitStoreFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := errors.New("down")
		store := &scripted{Store: memstore.New(nil), before: func(call int64) error {
			switch call {
			case 3: // of the first in line, when its time has come
				return down
			case 4:
				panic(down)
			}
			return nil
		}}
		w := newWaits(t, store, PerUser(time.Second, 1))
		w.take("alice", 1)
		first := w.add("alice", 1)
		panics := make(chan any, 1)
		go func() {
			defer func() { panics <- recover() }()
			w.limiter.Wait(t.Context(), w.rules, Keys{"user": "alice"})
		}()
		synctest.Wait()
		third := w.add("alice", 1)
		fourth := w.add("alice", 1)
		w.end()
		assert.ErrorIs(t, first.err, ErrUndecided)
		assert.ErrorIs(t, first.err, down)
		assert.Equal(t, down, <-panics)
		admitted(t, []time.Duration{time.Second, 2 * time.Second}, third, fourth)
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
			for i, got := range all {
				require.NoError(t, got.err)
				assert.Equal(t, i/100, int(got.d.At.Sub(w.start)/(100*time.Millisecond)), "in order")
			}
			assert.LessOrEqual(t, time.Since(w.start), 1200*time.Millisecond)
			assert.LessOrEqual(t, store.n.Load(), int64(1100))
		})
	}
}

// TestLimiterWaitEndsInFlight has a wait cancelled while the store decides.
func TestLimiterWaitEndsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := memstore.New(nil)
		store := &scripted{Store: memory, before: func(int64) error {
			time.Sleep(100 * time.Millisecond) // a slow reply
			return nil
		}}
		w := newWaits(t, store, PerUser(time.Second, 1))
		first := w.add("alice", 1)
		time.Sleep(50 * time.Millisecond)
		first.cancel()
		w.end()
		admitted(t, []time.Duration{100 * time.Millisecond}, first)

		second := w.add("alice", 1)
		time.Sleep(150 * time.Millisecond)
		second.cancel()
		w.end()
		assert.Equal(t, context.Canceled, second.err, "it was refused, and there is nothing to return")
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
				d, err := limiter.WaitN(ctx, rules, Keys{"user": user}, n)
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
		assert.Empty(t, limiter.lines.of)
		assert.Zero(t, limiter.lines.waiting.Load())
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

func TestLimiterWaitAllocates(t *testing.T) {
	limiter := New(nil, nil)
	rules := Named("p", PerUser(time.Hour, 50000), Global(time.Hour, 50000))
	alice := Keys{"user": "alice"}
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	_, err := limiter.TakeN(ctx, rules, alice, 10000) // the log has grown
	require.NoError(t, err)
	take := testing.AllocsPerRun(1000, func() { limiter.Take(ctx, rules, alice) })
	wait := testing.AllocsPerRun(1000, func() { limiter.Wait(ctx, rules, alice) })
	assert.LessOrEqual(t, wait, take)
}
