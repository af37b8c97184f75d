package guard

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/logbook"
	"github.com/routelimit/limit/stores/storetest"
)

// sharedStore says how many processes share it.
type sharedStore struct {
	core.Store
	processes, asked int
}

func (s *sharedStore) Sharers(context.Context) (int, error) {
	s.asked++
	if s.processes < 0 {
		return 0, errDown
	}
	return s.processes, nil
}

// TestCensus has more processes share a store than Instances says: for less than a deploy
// takes, and for longer.
func TestCensus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		book, now := new(logbook.Book), new(atomic.Int64)
		now.Store(sec)
		store := &sharedStore{Store: at(now), processes: 4}
		s := newStore(store, &Options{Log: book.Log(), Instances: 2}, at(now), now.Load)
		pass := func(minutes int) {
			t.Helper()
			for range minutes {
				for range 3 {
					storetest.MustTake(t, s, charge("r", 1_000, core.Local))
					synctest.Wait()
				}
				now.Add(60 * sec)
			}
		}
		pass(15)
		assert.Equal(t, 14, store.asked, "once a minute, and not in the first")
		store.processes = 2 // the deploy has ended
		pass(20)
		store.processes = 3
		pass(10)
		store.processes = -1 // unknown
		pass(5)
		assert.Empty(t, book.Lines())
		store.processes = 3
		pass(1)
		lines := book.Lines()
		require.Len(t, lines, 1)
		assert.Contains(t, lines[0], "code=LIMIT-119 processes=3 instances=2")
		pass(15)
		assert.Len(t, book.Lines(), 1, "again, for as long as it lasts")
	})
}
