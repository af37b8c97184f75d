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
		_, mayAsk := q.Next(w)
		assert.True(t, mayAsk, i)
		q.Leave(w, nil)
		assert.False(t, w.Queued())
	}
	assert.Zero(t, q.Len())
	assert.Empty(t, q.of, "an empty queue is not kept")
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
	now, mayAsk := q.Next(first)
	assert.True(t, mayAsk)
	assert.Zero(t, now)
}

// TestNoSharedKey checks that a waiter is not held up by one of another key.
func TestNoSharedKey(t *testing.T) {
	var q Queues
	alice, bob := newWaiter(&q, "alice"), newWaiter(&q, "bob")
	q.Join(alice, refusal(1), time.Now().Add(time.Hour))
	due, mayAsk := q.Next(bob)
	assert.True(t, mayAsk)
	assert.Zero(t, due)
	assert.False(t, bob.Queued())
}
