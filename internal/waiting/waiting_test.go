package waiting

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit/core"
)

// refusal returns a decision that refuses each rule for a time, in µs.
func refusal(retry ...int64) *core.Decision {
	d := core.NewDecision(1, len(retry))
	for i := range retry {
		d.Outcomes()[i].RetryAfter = retry[i]
	}
	return &d
}

func newWaiter(q *Queues, keys ...string) *Waiter {
	w := &Waiter{Cost: 1}
	q.Enter(w)
	var ids []ID
	for i, key := range keys {
		ids = append(ids, ID{Quota: Quota{Policy: "p", Rule: string(rune('a' + i)), Key: key}})
	}
	w.Name(ids)
	return w
}

// TestOrder has waiters of one key leave in the order of their tickets, whatever
// order they join in.
func TestOrder(t *testing.T) {
	var q Queues
	due := time.Now().Add(-time.Second)
	first, second, third := newWaiter(&q, "alice"), newWaiter(&q, "alice"), newWaiter(&q, "alice")
	for _, w := range []*Waiter{third, first, second} {
		q.Join(w, refusal(1), due, due)
	}
	assert.EqualValues(t, 3, q.Len())
	for i, w := range []*Waiter{first, second, third} {
		_, mayAsk, _ := q.Next(w)
		assert.True(t, mayAsk, i)
		q.Leave(w, nil)
		assert.False(t, w.Queued())
	}
	assert.Zero(t, q.Len())
	assert.Empty(t, q.of, "an empty queue is not kept")
}

// TestRefilledWhileAsking gives units back while the first waiter asks the store: what the
// store then says may be older, so the waiter asks again at once, and only once.
func TestRefilledWhileAsking(t *testing.T) {
	var q Queues
	past, later := time.Now().Add(-time.Second), time.Now().Add(time.Hour)
	w := newWaiter(&q, "alice")
	q.Join(w, refusal(1), past, past)
	for range 2 {
		_, mayAsk, _ := q.Next(w)
		assert.True(t, mayAsk)
		q.Refilled(w.ids[0].Quota)
		q.Join(w, refusal(1), later, later)
		due, mayAsk, _ := q.Next(w)
		assert.True(t, mayAsk)
		assert.Zero(t, due)
		q.Join(w, refusal(1), later, later)
		due, _, _ = q.Next(w)
		assert.Equal(t, later, due)
	}
}

// TestBounds fills a queue, and then the number of requests over all queues. A waiter
// that moves to a full queue is in none.
func TestBounds(t *testing.T) {
	q := Queues{Requests: 3}
	due := time.Now().Add(time.Hour)
	request := func(keys ...string) *Waiter {
		w := newWaiter(&q, keys...)
		w.Bounds = []int{2, 2}
		return w
	}
	first, second, third := request("alice", "a"), request("alice", "b"), request("alice", "c")
	assert.True(t, q.Join(first, refusal(2, 1), due, due))
	assert.True(t, q.Join(second, refusal(2, 1), due, due))
	assert.True(t, q.Join(second, refusal(3, 1), due, due), "it is there already")
	assert.False(t, q.Join(third, refusal(2, 1), due, due))
	assert.Zero(t, third.Rule())
	assert.False(t, third.Queued())
	head, mayAsk, full := q.Next(third)
	assert.True(t, full)
	assert.False(t, mayAsk)
	assert.Equal(t, due, head)
	assert.True(t, q.Join(third, refusal(1, 2), due, due))
	assert.Equal(t, 1, third.Rule())

	other := request("bob", "d")
	assert.False(t, q.Join(other, refusal(2, 1), due, due), "three wait already")
	assert.True(t, q.Join(newWaiter(&q, "bob", "d"), refusal(2, 1), due, due), "callers of Wait are not bounded")
	q.Leave(first, nil)
	assert.True(t, q.Join(other, refusal(2, 1), due, due))
	for _, w := range []*Waiter{second, third, other} {
		q.Leave(w, nil)
	}
	assert.EqualValues(t, 1, q.Len())
	assert.Zero(t, q.requests)
}

// TestBoundsOfClasses fills the queue of a key with a low class: a higher one has room of
// its own.
func TestBoundsOfClasses(t *testing.T) {
	q := Queues{Requests: 10}
	join := func(class uint8) bool {
		w := ofClass(&q, class)
		w.Bounds = []int{2}
		return q.Join(w, refusal(1), time.Now(), time.Now())
	}
	for i, row := range []struct {
		class uint8
		room  bool
	}{{2, true}, {2, true}, {2, false}, {0, true}, {2, false}, {0, true}, {0, false}, {1, false}} {
		assert.Equal(t, row.room, join(row.class), i)
	}
	assert.Equal(t, 4, q.requests)
}

// TestQueueOfLongestRefusal has a waiter queue for the rule that refuses longest,
// and move when that changes.
func TestQueueOfLongestRefusal(t *testing.T) {
	var q Queues
	due := time.Now().Add(time.Hour)
	w := newWaiter(&q, "alice", "")
	q.Join(w, refusal(1, 2), due, due)
	assert.Equal(t, 1, w.Rule())
	q.Join(w, refusal(3, 2), due, due)
	assert.Equal(t, 0, w.Rule())
	assert.EqualValues(t, 1, q.Len())
	q.Leave(w, nil)
	q.Leave(w, nil)
	assert.Empty(t, q.of)
}

// TestRefilled has units given back while two callers wait for them.
func TestRefilled(t *testing.T) {
	var q Queues
	due := time.Now().Add(time.Hour)
	first, second := newWaiter(&q, "alice"), newWaiter(&q, "alice")
	q.Join(first, refusal(1), due, due)
	q.Join(second, refusal(1), due, due)
	q.Refilled(Quota{Policy: "p", Rule: "a", Key: "bob"})
	assert.Empty(t, first.Wake())
	q.Refilled(Quota{Policy: "p", Rule: "a", Key: "alice"})
	q.Refilled(Quota{Policy: "p", Rule: "a", Key: "alice"})
	assert.Len(t, first.Wake(), 1)
	assert.Empty(t, second.Wake())
	now, mayAsk, _ := q.Next(first)
	assert.True(t, mayAsk)
	assert.Zero(t, now)
}

// TestNoSharedKey checks that a waiter is not held up by one of another key.
func TestNoSharedKey(t *testing.T) {
	var q Queues
	alice, bob := newWaiter(&q, "alice"), newWaiter(&q, "bob")
	q.Join(alice, refusal(1), time.Now().Add(time.Hour), time.Now().Add(time.Hour))
	due, mayAsk, _ := q.Next(bob)
	assert.True(t, mayAsk)
	assert.Zero(t, due)
	assert.False(t, bob.Queued())
}

// admission returns a decision that admits, and leaves no room.
func admission(rules int) *core.Decision {
	d := core.NewDecision(1, rules)
	d.Allowed = true
	return &d
}

// ofClass returns a waiter of a class.
func ofClass(q *Queues, class uint8) *Waiter {
	w := newWaiter(q, "alice")
	w.Class = class
	return w
}

// TestClasses has a background waiter, then as many critical ones as come, each of
// which is before the ones of lower classes. Overtakes of them pass the earliest of
// the others, which then comes first, whether they have waited or not.
func TestClasses(t *testing.T) {
	for _, queued := range []bool{true, false} {
		var q Queues
		due := time.Now().Add(-time.Second)
		join := func(class uint8) *Waiter {
			w := ofClass(&q, class)
			q.Join(w, refusal(1), due, due)
			return w
		}
		background, second := join(2), join(2)
		for _, late := range []*Waiter{background, second} {
			other := join(1)
			for range Overtakes {
				critical := ofClass(&q, 0)
				if queued {
					q.Join(critical, refusal(1), due, due)
				}
				if queued {
					_, mayAsk, _ := q.Next(late)
					assert.False(t, mayAsk, "the critical one is before it")
				}
				_, mayAsk, _ := q.Next(critical)
				assert.True(t, mayAsk)
				q.Leave(critical, admission(1))
			}
			for _, w := range []*Waiter{ofClass(&q, 0), other} {
				_, mayAsk, _ := q.Next(w)
				assert.False(t, mayAsk, "%d of class %d", w.ticket, w.Class)
				q.Leave(w, nil)
			}
			_, mayAsk, _ := q.Next(late)
			assert.True(t, mayAsk)
			q.Leave(late, admission(1))
		}
		assert.Zero(t, q.Len())
		assert.Empty(t, q.of)
	}
}

// TestLimitsApart has waiters with another limit or reserve of one key wait for each
// other neither way, and wakes all of them when units come back.
func TestLimitsApart(t *testing.T) {
	var q Queues
	due := time.Now().Add(time.Hour)
	var all []*Waiter
	for i := range 5 {
		w := newWaiter(&q, "alice")
		w.ids[0].Limit, w.ids[0].Reserve = int64(i/2), int64(i%2)
		_, mayAsk, _ := q.Next(w)
		assert.True(t, mayAsk)
		q.Join(w, refusal(1), due, due)
		all = append(all, w)
	}
	q.Refilled(Quota{Policy: "p", Rule: "a", Key: "alice"})
	for _, i := range []int{2, 4, 0, 3, 1} {
		at, mayAsk, _ := q.Next(all[i])
		assert.True(t, mayAsk && at.IsZero(), i)
		q.Leave(all[i], nil)
	}
	assert.Empty(t, q.of)
}

// TestEarliest compares the earliest waiter of a queue, and its order, with those of a
// plain list, as waiters of random classes come and go.
func TestEarliest(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var q Queues
	var all []*Waiter
	for range 5000 {
		if random.IntN(2) == 0 || len(all) == 0 {
			w := ofClass(&q, uint8(random.IntN(4)))
			q.Join(w, refusal(1), time.Now(), time.Now())
			all = append(all, w)
		} else {
			head := all[0].queue.head()
			q.Leave(head, admission(1))
			all = slices.DeleteFunc(all, func(w *Waiter) bool { return w == head })
		}
		if len(all) == 0 {
			continue
		}
		in := all[0].queue
		assert.Same(t, all[0], in.earliest(), "they are in the order of tickets")
		assert.True(t, slices.IsSortedFunc(in.waiters, (*Waiter).compare))
		assert.Len(t, in.waiters, len(all))
	}
}
