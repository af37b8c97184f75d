package guard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/stores/storetest"
)

const sec = 1_000 * ms

func charge(rule string, limit int64, on core.OnError) core.Charge {
	return core.Charge{Rule: rule, Key: "k", Quota: core.Quota{Limit: limit, Window: 10 * sec}, Cost: 1, OnError: on}
}

// TestFailures checks, for each kind of error and each OnError, what four requests get
// from two rules: the first admits 3, the second 2.
func TestFailures(t *testing.T) {
	unavailable := map[string]error{
		"refused":    fmt.Errorf("dial tcp 127.0.0.1:6379: connect: connection refused: %w", core.ErrUnavailable),
		"lost":       fmt.Errorf("%w: %w", core.ErrUnavailable, io.EOF),
		"timeout":    fmt.Errorf("%w: %w", core.ErrUnavailable, context.DeadlineExceeded),
		"cancelled":  fmt.Errorf("%w: %w", core.ErrUnavailable, context.Canceled), // by the store, not by the caller
		"loading":    fmt.Errorf("%w: LOADING Redis is loading the dataset in memory", core.ErrUnavailable),
		"bare":       core.ErrUnavailable,
		"wrapped":    fmt.Errorf("observer: %w", fmt.Errorf("redis: %w", core.ErrUnavailable)),
		"one of two": errors.Join(io.ErrUnexpectedEOF, core.ErrUnavailable),
	}
	const (
		local, allow, refuse = core.Local, core.Allow, core.Refuse
		exact                = "exact"
	)
	for _, test := range []struct {
		first, second core.OnError
		want          [4]string // modes, with "!" for a refusal
	}{
		{local, local, [4]string{"local", "local", "local!", "local!"}},
		{local, allow, [4]string{"allowed", "allowed", "allowed", "local!"}},
		{allow, local, [4]string{"allowed", "allowed", "local!", "local!"}},
		{allow, allow, [4]string{"allowed", "allowed", "allowed", "allowed"}},
		{local, refuse, [4]string{"refused!", "refused!", "refused!", "refused!"}},
		{refuse, local, [4]string{"refused!", "refused!", "refused!", "refused!"}},
		{allow, refuse, [4]string{"refused!", "refused!", "refused!", "refused!"}},
		{refuse, refuse, [4]string{"refused!", "refused!", "refused!", "refused!"}},
	} {
		for name, failure := range unavailable {
			for _, lost := range []bool{false, true} { // whether the store had counted
				t.Run(fmt.Sprintf("%v, %v, %s, %v", test.first, test.second, name, lost), func(t *testing.T) {
					s, f, _ := guarded(1, sec)
					f.fail(failure)
					f.lost.Store(lost)
					for i, want := range test.want {
						d := storetest.MustTake(t, s, charge("first", 3, test.first), charge("second", 2, test.second))
						got := d.Mode.String()
						if !d.Allowed {
							got += "!"
							assert.Positive(t, d.RetryAfter())
						} else {
							assert.Zero(t, d.RetryAfter())
						}
						assert.Equal(t, want, got, "request %d", i)
					}
				})
			}
		}
	}
	other := map[string]error{
		"charges":     fmt.Errorf("%w: as a test wants", core.ErrCharges),
		"wrong type":  errors.New("WRONGTYPE a key holds another kind of value"),
		"cross slot":  errors.New("CROSSSLOT Keys in request don't hash to the same slot"),
		"no more":     errors.New("the store is unavailable"), // looks like it
		"end of file": io.EOF,
	}
	for name, failure := range other {
		for _, on := range []core.OnError{local, allow, refuse} {
			t.Run(fmt.Sprintf("%s, %v", name, on), func(t *testing.T) {
				s, f, _ := guarded(1, 0)
				f.fail(failure)
				for i := range 100 {
					d, err := core.Take(t.Context(), s, storetest.Of("p", charge("r", 3, on)))
					assert.ErrorIs(t, err, failure)
					assert.False(t, d.Allowed)
					require.EqualValues(t, i+1, f.asked.Load(), "it does not open the breaker")
				}
				f.fail(nil)
				d := storetest.MustTake(t, s, charge("r", 3, on))
				assert.Equal(t, exact, d.Mode.String())
				assert.EqualValues(t, 2, d.Outcomes()[0].Remaining)
			})
		}
	}
}

// TestCallersOwnEnd checks that a caller that goes away gets no decision and does not open
// the breaker, but that a deadline does that a slow store has missed.
func TestCallersOwnEnd(t *testing.T) {
	s, f, now := guarded(1, 0)
	f.fail(errDown)
	var cancel context.CancelFunc
	var ctx context.Context
	f.first = func() {
		now.Add(sec) // slow, too
		cancel()
	}
	for i := range 100 {
		ctx, cancel = context.WithCancel(t.Context())
		d, err := core.Take(ctx, s, storetest.Of("p", charge("r", 3, core.Allow)))
		assert.Error(t, err)
		assert.False(t, d.Allowed)
		require.EqualValues(t, i+1, f.asked.Load())
	}
	d, err := core.Take(ctx, s, storetest.Of("p", charge("r", 3, core.Allow)))
	assert.ErrorIs(t, err, context.Canceled, "done before the call")
	assert.False(t, d.Allowed)
	assert.EqualValues(t, 100, f.asked.Load())

	f.first = func() {
		now.Add(sec)
		<-ctx.Done()
	}
	for range 2 * slowToOpen {
		ctx, cancel = context.WithTimeout(t.Context(), 1_000_000)
		_, err := core.Take(ctx, s, storetest.Of("p", charge("r", 30, core.Allow)))
		cancel()
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, core.ErrUnavailable) {
			continue // or the breaker is open, and the request decided
		}
		require.NoError(t, err)
	}
	assert.EqualValues(t, 100+slowToOpen, f.asked.Load())
}

// TestBreakerSavesCalls checks that a store that fails is not called, even by a hundred
// callers at once, except for one probe at a time.
func TestBreakerSavesCalls(t *testing.T) {
	s, f, now := guarded(1, 0)
	f.fail(errDown)
	take := func() core.Decision {
		d := storetest.MustTake(t, s, charge("r", 1000, core.Local))
		assert.True(t, d.Allowed)
		return d
	}
	for range 100 {
		assert.Equal(t, core.ModeLocal, take().Mode)
	}
	assert.EqualValues(t, failuresToOpen, f.asked.Load())

	now.Add(firstWait)
	in, out := make(chan struct{}), make(chan struct{})
	f.first = func() { in <- struct{}{}; <-out }
	done := make(chan core.Decision)
	go func() { done <- take() }()
	<-in
	for range 100 {
		assert.Equal(t, core.ModeLocal, take().Mode, "the others do not wait")
	}
	f.fail(nil)
	close(out)
	assert.Equal(t, core.ModeExact, (<-done).Mode)
	assert.EqualValues(t, failuresToOpen+1, f.asked.Load())
	f.first = nil
	assert.Equal(t, core.ModeExact, take().Mode, "one success is enough")
}

// TestProbeOfForgotten checks that a store that is back, and reports lost data, is asked by
// the next request, and trusted no more than before.
func TestProbeOfForgotten(t *testing.T) {
	s, f, now := guarded(1, 0)
	take := func(mode core.Mode, allowed bool) {
		t.Helper()
		d := storetest.MustTake(t, s, charge("r", 10, core.Local))
		require.Equal(t, mode, d.Mode)
		require.Equal(t, allowed, d.Allowed)
	}
	f.fail(errDown)
	for range failuresToOpen {
		take(core.ModeLocal, true)
	}
	now.Add(firstWait)
	f.fail(fmt.Errorf("%w: as a test wants", core.ErrForgotten))
	take(core.ModeLocal, true)
	f.fail(nil)
	take(core.ModeExact, true)

	// Nor does it open a breaker, since it has answered.
	f.fail(fmt.Errorf("%w: again and again", core.ErrForgotten))
	calls := func() int64 { return f.asked.Load() + f.sought.Load() }
	for before := calls(); calls() < before+failuresToOpen+1; {
		storetest.MustTake(t, s, charge("other", 100, core.Local))
	}
	f.fail(nil)
	for range 10 - failuresToOpen - 2 {
		take(core.ModeExact, true)
	}
	take(core.ModeLocal, false)
}

// TestProbeTakesNothing checks that the store is probed even while the memory refuses
// everything, and that the probe takes nothing.
func TestProbeTakesNothing(t *testing.T) {
	s, f, now := guarded(1, 0)
	f.fail(errDown)
	c := []core.Charge{charge("r", 3, core.Local)}
	for range 10 {
		storetest.MustTake(t, s, c...)
	}
	f.fail(nil)
	now.Add(firstWait)
	d := storetest.MustTake(t, s, c...)
	assert.False(t, d.Allowed)
	assert.EqualValues(t, 10*sec-firstWait, d.RetryAfter())
	assert.Zero(t, s.breaker.until.Load(), "closed")
	d = storetest.MustTake(t, f.Store, core.Charge{Rule: "r", Key: "k", Quota: c[0].Quota})
	assert.EqualValues(t, 3, d.Outcomes()[0].Remaining)

	// When all that was admitted without the store has left the window, the
	// memory does not decide any more.
	now.Add(10*sec + slack)
	for range 3 {
		d = storetest.MustTake(t, s, c...)
		assert.Equal(t, core.ModeExact, d.Mode)
		assert.True(t, d.Allowed)
	}
}

// TestRefuse checks a refusal by a rule with Refuse.
func TestRefuse(t *testing.T) {
	s, f, now := guarded(1, 0)
	f.fail(errDown)
	charges := []core.Charge{charge("a", 3, core.Local), charge("b", 3, core.Refuse)}
	for range failuresToOpen {
		storetest.MustTake(t, s, charges...)
	}
	now.Add(5 * ms)
	d := storetest.MustTake(t, s, charges...)
	assert.False(t, d.Allowed)
	assert.EqualValues(t, firstWait-5*ms, d.RetryAfter(), "until the next probe")
	assert.Equal(t, []core.Outcome{{Remaining: 3}, {RetryAfter: firstWait - 5*ms}}, d.Outcomes())

	charges[1].Cost = 0 // nothing to refuse
	d = storetest.MustTake(t, s, charges...)
	assert.True(t, d.Allowed)
	assert.Equal(t, core.ModeLocal, d.Mode)
	assert.Equal(t, core.Outcome{MoreAfter: firstWait - 5*ms}, d.Outcomes()[1], "a look reports that nothing is left")
}

// TestShare checks what an instance of three admits without the store, what it reports
// as left, and when a cost above the share can be admitted.
func TestShare(t *testing.T) {
	s, f, _ := guarded(3, 0)
	c := charge("r", 10, core.Local)
	c.Cost = 3
	d := storetest.MustTake(t, s, c)
	assert.EqualValues(t, 7, d.Outcomes()[0].Remaining)
	f.fail(errDown)
	d = storetest.MustTake(t, s, c)
	assert.False(t, d.Allowed)
	assert.EqualValues(t, 1, d.Outcomes()[0].Remaining, "4 less the 3 that the store has admitted")
	c.Cost = 1
	d = storetest.MustTake(t, s, c)
	assert.True(t, d.Allowed)
	c.Cost = 5
	d = storetest.MustTake(t, s, c)
	assert.False(t, d.Allowed)
	assert.EqualValues(t, 10*sec+slack, d.RetryAfter(), "the share decides for a window after this decision")
	c.Cost = 11
	d = storetest.MustTake(t, s, c)
	assert.Equal(t, core.Never, d.RetryAfter())
}
