package guard

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/logbook"
	"github.com/routelimit/limit/stores/storetest"
)

// TestOutage follows the log through outages.
func TestOutage(t *testing.T) {
	book := new(logbook.Book)
	now := new(atomic.Int64)
	now.Store(sec)
	f := &frail{Store: at(now)}
	s := newStore(f, &Options{Log: book.Log()}, at(now), now.Load)
	take := func(onError core.OnError) {
		t.Helper()
		storetest.MustTake(t, s, charge("r", 10, onError))
	}
	take(core.Local)
	assert.Empty(t, book.Lines(), "an answer")

	f.fail(errDown)
	take(core.Local)
	assert.Equal(t, []string{`level=WARN msg="limit: the store is unavailable; requests are decided without it" code=LIMIT-205 error="` + errDown.Error() + `"`}, book.Lines())
	for range 30 {
		now.Add(1)
		take(core.Local)
		take(core.Allow)
		take(core.Refuse)
	}
	assert.Empty(t, book.Lines(), "the same outage")
	now.Add(60 * sec)
	take(core.Local)
	assert.Equal(t, []string{`level=WARN msg="limit: the store is still unavailable" code=LIMIT-205 for=1m0.00003s local=32 allowed=30 refused=30`}, book.Lines())

	f.fail(nil)
	now.Add(sec)
	take(core.Local)
	assert.Empty(t, book.Lines(), "it may fail again at once")
	f.fail(errDown)
	take(core.Local)
	f.fail(nil)
	now.Add(logQuiet - 1)
	take(core.Local)
	assert.Empty(t, book.Lines())
	now.Add(1)
	take(core.Local)
	assert.Equal(t, []string{`level=INFO msg="limit: the store is available again" code=LIMIT-205 for=1m1.00003s local=33 allowed=30 refused=30`}, book.Lines())
	take(core.Local)
	assert.Empty(t, book.Lines(), "once")

	f.fail(core.ErrForgotten)
	take(core.Local)
	assert.Equal(t, []string{`level=WARN msg="limit: the store is unavailable; requests are decided without it" code=LIMIT-205 error="` + core.ErrForgotten.Error() + `"`}, book.Lines())
	f.fail(nil)
	now.Add(logQuiet)
	take(core.Local)
	assert.Equal(t, []string{`level=INFO msg="limit: the store is available again" code=LIMIT-205 for=0s local=1`}, book.Lines())
}

// TestOutageOfManyCallers checks that one line is logged, however many callers find the store
// unavailable at once.
func TestOutageOfManyCallers(t *testing.T) {
	book := new(logbook.Book)
	now := new(atomic.Int64)
	now.Store(sec)
	f := &frail{Store: at(now)}
	s := newStore(f, &Options{Log: book.Log()}, at(now), now.Load)
	const callers = 64
	many := func() {
		var group sync.WaitGroup
		for range callers {
			group.Go(func() {
				_, err := core.Take(context.Background(), s, storetest.Of("p", charge("r", 1000, core.Local)))
				assert.NoError(t, err)
			})
		}
		group.Wait()
	}
	f.fail(errDown)
	many()
	assert.Len(t, book.Lines(), 1)
	now.Add(60 * sec)
	many()
	assert.Len(t, book.Lines(), 1)
	f.fail(nil)
	now.Add(sec)
	storetest.MustTake(t, s, charge("r", 1000, core.Local)) // the probe
	now.Add(logQuiet)
	many()
	assert.Equal(t, []string{`level=INFO msg="limit: the store is available again" code=LIMIT-205 for=1m0s local=128`}, book.Lines())
}

// TestOutageIsLoggedByDefault checks that the line goes to the default log of that time.
func TestOutageIsLoggedByDefault(t *testing.T) {
	book := new(logbook.Book)
	before := slog.Default()
	f := &frail{Store: at(new(atomic.Int64))}
	f.fail(errDown)
	s := New(f, nil)
	slog.SetDefault(book.Log())
	defer slog.SetDefault(before)
	storetest.MustTake(t, s, charge("r", 10, core.Local))
	assert.Len(t, book.Lines(), 1)
}
