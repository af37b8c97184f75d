package limit_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/operate"
	"github.com/routelimit/limit/stores/memstore"
)

// A switched store takes a millisecond to decide, and fails while err is set.
type switched struct {
	core.Store
	err error
}

func (s *switched) Take(ctx context.Context, asks []core.Ask) error {
	time.Sleep(time.Millisecond)
	if s.err != nil {
		return s.err
	}
	return s.Store.Take(ctx, asks)
}

// TestStats counts waiters, reservations and an outage.
func TestStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &switched{Store: memstore.New(nil)}
		limiter := limit.New(store, &limit.Options{Log: slog.New(slog.DiscardHandler)})
		policy := mustPolicy(limiter, limit.Named("p", limit.Global(time.Minute, 2)))
		assert.Equal(t, operate.Stats{}, operate.ReadStats(limiter))

		var reserved []limit.Decision
		for range 3 {
			d, err := policy.Reserve(t.Context(), limit.Request{})
			require.NoError(t, err)
			reserved = append(reserved, d)
		}
		assert.Equal(t, operate.Stats{Reserved: 2}, operate.ReadStats(limiter))
		go policy.Wait(t.Context(), limit.Request{})
		synctest.Wait()
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		assert.Equal(t, operate.Stats{Reserved: 2, Waiters: 1}, operate.ReadStats(limiter))

		require.NoError(t, reserved[0].Settle(t.Context(), 0))
		require.ErrorIs(t, reserved[0].Settle(t.Context(), 0), limit.ErrSettled)
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		assert.Equal(t, operate.Stats{Reserved: 2, Settled: 1}, operate.ReadStats(limiter))

		store.err = core.ErrUnavailable
		other := mustPolicy(limiter, limit.Named("other", limit.Global(time.Minute, 100)))
		for range 5 {
			assert.False(t, operate.ReadStats(limiter).Unavailable)
			_, err := other.Take(t.Context(), limit.Request{})
			require.NoError(t, err)
		}
		assert.True(t, operate.ReadStats(limiter).Unavailable)
	})
}

// TestLatency measures the store for Observe alone, and waits of Wait.
func TestLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &switched{Store: memstore.New(nil)}
		var seen limit.Decision
		limiter := limit.New(store, &limit.Options{Log: slog.New(slog.DiscardHandler),
			Observe: func(_ *http.Request, d limit.Decision, _ error) { seen = d }})
		policy := mustPolicy(limiter, limit.Named("p", limit.Global(time.Second, 1)))
		_, err := policy.Take(t.Context(), limit.Request{})
		require.NoError(t, err)
		assert.Equal(t, time.Millisecond, seen.Latency)
		assert.Zero(t, seen.Waited)

		_, err = policy.Wait(t.Context(), limit.Request{})
		require.NoError(t, err)
		assert.Equal(t, time.Millisecond, seen.Latency)
		assert.InDelta(t, time.Second, seen.Waited, float64(5*time.Millisecond))

		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err = policy.Wait(ctx, limit.Request{})
		require.True(t, errors.As(err, new(*limit.RefusedError)))
		assert.Zero(t, seen.Waited, "refused at once")

		d, err := mustPolicy(limit.New(store, nil), limit.Named("p", limit.Global(time.Second, 1))).Take(t.Context(), limit.Request{})
		require.NoError(t, err)
		assert.Zero(t, d.Latency)
	})
}

// TestDecisionRule has the outcomes of Rules, without an allocation.
func TestDecisionRule(t *testing.T) {
	policy := mustPolicy(limit.New(nil, nil), limit.Named("p", limit.Global(time.Hour, 5), limit.PerIP(time.Minute, 3)))
	d, err := policy.Take(t.Context(), limit.Request{Keys: map[string]string{"ip": "203.0.113.9"}})
	require.NoError(t, err)
	var rules []limit.RuleDecision
	var rule limit.RuleDecision
	for i := 0; d.Rule(i, &rule); i++ {
		rules = append(rules, rule)
	}
	assert.Equal(t, d.Rules(), rules)
	assert.EqualValues(t, 4, rules[0].Remaining)
	assert.False(t, d.Rule(-1, &rule))
	assert.False(t, new(limit.Decision).Rule(0, &rule))
	assert.Zero(t, testing.AllocsPerRun(100, func() { d.Rule(1, &rule) }))
}
