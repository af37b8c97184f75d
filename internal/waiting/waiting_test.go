package waiting

import (
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
		ids = append(ids, ID{Policy: "p", Rule: string(rune('a' + i)), Key: key})
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
		q.Join(w, refusal(1), due)
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
	assert.True(t, q.Join(first, refusal(2, 1), due))
	assert.True(t, q.Join(second, refusal(2, 1), due))
	assert.True(t, q.Join(second, refusal(3, 1), due), "it is there already")
	assert.False(t, q.Join(third, refusal(2, 1), due))
	assert.Zero(t, third.Rule())
	assert.False(t, third.Queued())
	head, mayAsk, full := q.Next(third)
	assert.True(t, full)
	assert.False(t, mayAsk)
	assert.Equal(t, due, head)
	assert.True(t, q.Join(third, refusal(1, 2), due))
	assert.Equal(t, 1, third.Rule())

	other := request("bob", "d")
	assert.False(t, q.Join(other, refusal(2, 1), due), "three wait already")
	assert.True(t, q.Join(newWaiter(&q, "bob", "d"), refusal(2, 1), due), "callers of Wait are not bounded")
	q.Leave(first, nil)
	assert.True(t, q.Join(other, refusal(2, 1), due))
	for _, w := range []*Waiter{second, third, other} {
		q.Leave(w, nil)
	}
	assert.EqualValues(t, 1, q.Len())
	assert.Zero(t, q.requests)
}

// TestAlone checks that no waiter queues for a charge that decides alone.
func TestAlone(t *testing.T) {
	var q Queues
	w := newWaiter(&q, "alice", "a")
	d := refusal(1, 5)
	d.SetAlone(1)
	q.Join(w, d, time.Now())
	assert.Zero(t, w.Rule())
}

// TestQueueOfLongestRefusal has a waiter queue for the rule that refuses longest,
// and move when that changes.
func TestQueueOfLongestRefusal(t *testing.T) {
	var q Queues
	due := time.Now().Add(time.Hour)
	w := newWaiter(&q, "alice", "")
	q.Join(w, refusal(1, 2), due)
	assert.Equal(t, 1, w.Rule())
	q.Join(w, refusal(3, 2), due)
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
	q.Join(first, refusal(1), due)
	q.Join(second, refusal(1), due)
	q.Refilled(ID{Policy: "p", Rule: "a", Key: "bob"})
	assert.Empty(t, first.Wake())
	q.Refilled(ID{Policy: "p", Rule: "a", Key: "alice"})
	q.Refilled(ID{Policy: "p", Rule: "a", Key: "alice"})
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
	q.Join(alice, refusal(1), time.Now().Add(time.Hour))
	due, mayAsk, _ := q.Next(bob)
	assert.True(t, mayAsk)
	assert.Zero(t, due)
	assert.False(t, bob.Queued())
}
