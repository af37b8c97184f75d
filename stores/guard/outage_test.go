package guard

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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
	assert.Equal(t, []string{`level=WARN msg="limit: the store is unavailable; until it answers, each rule decides as its on-error says" code=LIMIT-205 error="` + errDown.Error() + `"`}, book.Lines())
	for range 30 {
		now.Add(1)
		take(core.Local)
		take(core.Allow)
		take(core.Refuse)
	}
	assert.Empty(t, book.Lines(), "the same outage")
	now.Add(60 * sec)
	take(core.Local)
	assert.Equal(t, []string{`level=WARN msg="limit: the store is still unavailable" code=LIMIT-205 since=1970-01-01T00:00:01.000Z for=1m0.00003s local=32 allowed=30 refused=30 doubted=1970-01-01T00:01:01.000Z`}, book.Lines())

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
	assert.Equal(t, []string{`level=INFO msg="limit: the store is available again" code=LIMIT-205 since=1970-01-01T00:00:01.000Z for=1m1.00003s local=33 allowed=30 refused=30 doubted=1970-01-01T00:01:02.000Z`}, book.Lines())
	take(core.Local)
	assert.Empty(t, book.Lines(), "once")

	f.fail(core.ErrForgotten)
	take(core.Local)
	assert.Equal(t, []string{`level=WARN msg="limit: the store is unavailable; until it answers, each rule decides as its on-error says" code=LIMIT-205 error="` + core.ErrForgotten.Error() + `"`}, book.Lines())
	f.fail(nil)
	now.Add(logQuiet)
	take(core.Local)
	assert.Equal(t, []string{`level=INFO msg="limit: the store is available again" code=LIMIT-205 since=1970-01-01T00:01:07.000Z for=0s local=1 owed=1 lost=1970-01-01T00:01:07.000Z`}, book.Lines())
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
	assert.Equal(t, []string{`level=INFO msg="limit: the store is available again" code=LIMIT-205 since=1970-01-01T00:00:01.000Z for=1m0s local=128 doubted=1970-01-01T00:01:01.000Z`}, book.Lines())
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

// TestIdleOutage has no request after an outage. It ends all the same, its units are paid, and
// the log and the condition say so.
func TestIdleOutage(t *testing.T) {
	book := new(logbook.Book)
	s, f, now := guarded(2, sec)
	s.outage.log.To = book.Log()
	var timers []func()
	s.debts.after = func(_ time.Duration, f func()) { timers = append(timers, f) }
	second := func() core.Condition {
		now.Add(sec)
		due := timers
		timers = nil
		for _, f := range due {
			f()
		}
		return s.Condition()
	}
	f.fail(errAway)
	storetest.MustTake(t, s, charge("allow", 10, core.Allow))
	assert.Equal(t, core.Condition{Unavailable: true, Outages: 1, Since: time.UnixMicro(sec), Until: time.UnixMicro(sec)}, s.Condition())
	for range 2 * failuresToOpen {
		second()
		storetest.MustTake(t, s, charge("r", 1000, core.Local))
	}
	until := time.UnixMicro(now.Load())
	c := second()
	assert.Equal(t, core.Condition{Unavailable: true, Outages: 1, Since: time.UnixMicro(sec), Until: until, Owed: 10}, c, "the breaker is open")
	f.fail(nil)
	c = second()
	assert.Equal(t, core.Condition{Outages: 1, Since: time.UnixMicro(sec), Until: until, Paid: 10}, c)
	assert.Len(t, book.Lines(), 1)
	for range 5 {
		second()
	}
	assert.Equal(t, []string{`level=INFO msg="limit: the store is available again" code=LIMIT-205 since=1970-01-01T00:00:01.000Z for=10s local=10 allowed=1 paid=10`}, book.Lines())
	assert.Empty(t, timers)

	f.fail(core.ErrForgotten)
	storetest.MustTake(t, s, charge("r", 1000, core.Local))
	c = s.Condition()
	assert.Equal(t, []any{int64(2), time.UnixMicro(now.Load()).UTC()}, []any{c.Outages, c.Lost})
}
