package prefetch

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/stores/guard"
)

// TestOutage holds that permits that are held are handed out while the store fails,
// and that a guard below decides the other requests.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOne(t, perMinute)
		var failed error
		inner := &failing{Store: o.own, err: &failed}
		o.store = New(guard.New(inner, &guard.Options{Log: slog.New(slog.DiscardHandler)}), &Options{Rules: []Rule{{"p", "all"}}, Hold: hold})
		used := o.warm()
		failed = core.ErrUnavailable
		require.Equal(t, core.ModeExact, o.take(o.charge(1)).Mode)
		used++
		time.Sleep(2 * hold)
		for used < 1000 {
			d := o.take(o.charge(1))
			require.True(t, d.Allowed, "%d", used)
			require.Equal(t, core.ModeLocal, d.Mode)
			used++
			time.Sleep(100 * time.Microsecond)
		}
		require.False(t, o.take(o.charge(1)).Allowed)
		require.Zero(t, o.held())
		require.NoError(t, o.store.Close(o.ctx))
	})
}
