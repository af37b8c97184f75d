package guard

import (
	"container/heap"
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/stores/memstore"
)

// A counting store counts the debts that it is charged.
type counting struct {
	core.Store
	calls, debts int64
}

func (c *counting) Take(_ context.Context, asks []core.Ask) error {
	c.calls++
	for i := range asks {
		asks[i].Decision = core.NewDecision(0, len(asks[i].Charges))
		asks[i].Decision.Allowed = true
		if asks[i].Owes() {
			c.debts += int64(len(asks[i].Charges))
		}
	}
	return nil
}

// An alarm is when a process pays next.
type alarm struct {
	at    int64
	guard *Store
}

type alarms []alarm

func (a alarms) Len() int           { return len(a) }
func (a alarms) Less(i, j int) bool { return a[i].at < a[j].at }
func (a alarms) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }
func (a *alarms) Push(x any)        { *a = append(*a, x.(alarm)) }
func (a *alarms) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
}

// TestCrowd has many processes owe for many keys when their store returns: it is charged at a
// tenth of its time from the first moment on, and no process waits for another one's end. With
// LIMIT_CROWD there are 1,000 processes with 1,000 keys each.
func TestCrowd(t *testing.T) {
	processes, keys := 100, 200
	if os.Getenv("LIMIT_CROWD") != "" {
		processes, keys = 1_000, 1_000
	}
	var now atomic.Int64
	now.Store(1_750_000_000 * sec)
	store := &counting{}
	var due alarms
	c := core.Charge{Policy: "p", Rule: "r", Quota: core.Quota{Limit: 1_000, Window: day}, Cost: 1}
	for range processes {
		s := newStore(store, &Options{Instances: processes, Log: nowhere}, memstore.New(&memstore.Options{Now: now.Load}), now.Load)
		for i := range keys {
			c.Key = fmt.Sprint(i)
			charges := []core.Charge{c}
			require.True(t, s.debts.begin(charges, now.Load()))
			s.debts.end(charges, true, now.Load())
		}
		due = append(due, alarm{now.Load() + workEvery, s})
	}
	heap.Init(&due)
	began, busiest, second, in := now.Load(), int64(0), now.Load(), int64(0)
	for len(due) > 0 {
		next := heap.Pop(&due).(alarm)
		now.Store(next.at)
		if next.at-second >= sec {
			busiest, second, in = max(busiest, in), next.at, 0
		}
		before := store.debts
		pause := next.guard.payNext()
		in += store.debts - before
		if next.guard.debts.count.Load() > 0 {
			heap.Push(&due, alarm{next.at + pause, next.guard})
		}
	}
	took := float64(now.Load()-began) / float64(sec)
	debts := int64(processes * keys)
	t.Logf("%d processes with %d keys: %d debts in %.1f s by %d calls, %.0f a second, at most %d in a second",
		processes, keys, debts, took, store.calls, float64(debts)/took, max(busiest, in))
	assert.Equal(t, debts, store.debts)
	assert.LessOrEqual(t, max(busiest, in), int64(1.2*float64(sec)/payCost+float64(processes*core.MaxCharges)))
	assert.LessOrEqual(t, took, 1+1.5*float64(debts*payCost)/float64(sec))
}
