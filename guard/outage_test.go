package guard

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
)

// logged returns a logger and what it has written since it was last asked, a line each.
func logged() (*slog.Logger, func() []string) {
	var mu sync.Mutex
	var text bytes.Buffer
	log := slog.New(slog.NewTextHandler(writer(func(b []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return text.Write(b)
	}), &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	return log, func() []string {
		mu.Lock()
		defer mu.Unlock()
		defer text.Reset()
		return strings.FieldsFunc(text.String(), func(r rune) bool { return r == '\n' })
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }

// TestOutage follows the log through outages.
func TestOutage(t *testing.T) {
	log, lines := logged()
	now := new(atomic.Int64)
	now.Store(sec)
	f := &frail{Store: at(now)}
	s := newStore(f, &Options{Log: log}, at(now), now.Load)
	take := func(onError core.OnError) {
		t.Helper()
		_, err := s.Take(t.Context(), "p", []core.Charge{charge("r", 10, onError)})
		require.NoError(t, err)
	}
	take(core.Local)
	assert.Empty(t, lines(), "an answer")

	f.fail(errDown)
	take(core.Local)
	assert.Equal(t, []string{`level=WARN msg="limit: rules are decided without the store" error="` + errDown.Error() + `"`}, lines())
	for range 30 {
		now.Add(1)
		take(core.Local)
		take(core.Allow)
		take(core.Refuse)
	}
	assert.Empty(t, lines(), "the same outage")
	now.Add(60 * sec)
	take(core.Local)
	assert.Equal(t, []string{`level=WARN msg="limit: rules are still decided without the store" for=1m0.00003s local=32 allowed=30 refused=30`}, lines())

	f.fail(nil)
	now.Add(sec)
	take(core.Local)
	assert.Empty(t, lines(), "it may fail again at once")
	f.fail(errDown)
	take(core.Local)
	f.fail(nil)
	now.Add(logQuiet - 1)
	take(core.Local)
	assert.Empty(t, lines())
	now.Add(1)
	take(core.Local)
	assert.Equal(t, []string{`level=INFO msg="limit: the store decides again" for=1m1.00003s local=33 allowed=30 refused=30`}, lines())
	take(core.Local)
	assert.Empty(t, lines(), "once")

	f.fail(core.ErrForgotten)
	take(core.Local)
	assert.Equal(t, []string{`level=WARN msg="limit: rules are decided without the store" error="` + core.ErrForgotten.Error() + `"`}, lines())
	f.fail(nil)
	now.Add(logQuiet)
	take(core.Local)
	assert.Equal(t, []string{`level=INFO msg="limit: the store decides again" for=0s local=1`}, lines())
}

// TestOutageOfManyCallers has one line however many find the store away at once.
func TestOutageOfManyCallers(t *testing.T) {
	log, lines := logged()
	now := new(atomic.Int64)
	now.Store(sec)
	f := &frail{Store: at(now)}
	s := newStore(f, &Options{Log: log}, at(now), now.Load)
	const callers = 64
	many := func() {
		var group sync.WaitGroup
		for range callers {
			group.Go(func() {
				_, err := s.Take(context.Background(), "p", []core.Charge{charge("r", 1000, core.Local)})
				assert.NoError(t, err)
			})
		}
		group.Wait()
	}
	f.fail(errDown)
	many()
	assert.Len(t, lines(), 1)
	now.Add(logEvery)
	many()
	assert.Len(t, lines(), 1)
	f.fail(nil)
	now.Add(sec)
	_, err := s.Take(t.Context(), "p", []core.Charge{charge("r", 1000, core.Local)}) // the probe
	require.NoError(t, err)
	now.Add(logQuiet)
	many()
	assert.Equal(t, []string{`level=INFO msg="limit: the store decides again" for=1m0s local=128`}, lines())
}

// TestOutageIsLoggedByDefault has the line in the log that the program has by then.
func TestOutageIsLoggedByDefault(t *testing.T) {
	log, lines := logged()
	before := slog.Default()
	f := &frail{Store: at(new(atomic.Int64))}
	f.fail(errDown)
	s := New(f, nil)
	slog.SetDefault(log)
	defer slog.SetDefault(before)
	_, err := s.Take(t.Context(), "p", []core.Charge{charge("r", 10, core.Local)})
	require.NoError(t, err)
	assert.Len(t, lines(), 1)
}
