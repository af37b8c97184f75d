package memstore

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
)

func TestReclaimsBeforeSharing(t *testing.T) {
	s, set := tiny(4)
	keys := sameShard(s, "ip", core.Quota{Limit: 1, Window: sec}, 400)
	for i, c := range keys {
		set(int64(1+i/4) * sec)
		is(t, take(t, s, c), core.ModeExact, true, out(0, 0, sec, sec))
	}
	assert.Equal(t, 4, s.entries())
}

// TestNoRoom has more rules than a shard has room for.
func TestNoRoom(t *testing.T) {
	s, set := tiny(1)
	q := core.Quota{Limit: 5, Window: 10 * sec}
	for i := range 1 + overflowRoom {
		require.True(t, take(t, s, sameShard(s, fmt.Sprint("rule ", i), q, 1)[0]).Allowed, i)
	}
	c := sameShard(s, "another", q, 1)[0]
	is(t, take(t, s, c), core.ModeOverflow, false, out(0, noRoomRetry, 0, noRoomRetry))
	look := c
	look.Cost = 0
	is(t, take(t, s, look), core.ModeOverflow, true, out(0, 0, noRoomRetry, noRoomRetry))
	never := c
	never.Cost = 6
	is(t, take(t, s, never), core.ModeOverflow, false, out(0, core.Never, 0, noRoomRetry))
	two := sameShard(s, "two", q, 1)[0]
	assert.False(t, take(t, s, c, two).Allowed)
	known := sameShard(s, "rule 0", q, 1)[0]
	assert.False(t, take(t, s, known, c).Allowed)
	is(t, take(t, s, known), core.ModeExact, true, out(3, 0, 10*sec, 10*sec))
	assert.Equal(t, 1+overflowRoom, s.entries())

	set(10 * sec)
	is(t, take(t, s, c), core.ModeExact, true, out(4, 0, 10*sec, 10*sec))
}

// TestNoRoomForSharedRules has more rules that all requests share than the store has room
// for. They cannot use the quota of another rule.
func TestNoRoomForSharedRules(t *testing.T) {
	s, _ := tiny(1)
	refused := 0
	for i := range 200 {
		c := core.Charge{Rule: fmt.Sprint(i), Quota: core.Quota{Limit: 5, Window: 10 * sec}, Cost: 1}
		if d := take(t, s, c); !d.Allowed {
			is(t, d, core.ModeOverflow, false, out(0, noRoomRetry, 0, noRoomRetry))
			refused++
		}
	}
	assert.Equal(t, 200, refused+s.entries())
	assert.LessOrEqual(t, s.entries(), sharedShards)
	assert.Greater(t, s.entries(), sharedShards/2)
}

// TestRoomWithinADecision has several new keys of one shard at once.
func TestRoomWithinADecision(t *testing.T) {
	s, _ := tiny(2)
	q := core.Quota{Limit: 1, Window: 10 * sec}
	var charges []core.Charge
	for i := range 5 {
		charges = append(charges, sameShard(s, fmt.Sprint(i), q, 1)[0])
	}
	d := take(t, s, charges...)
	assert.Equal(t, []any{core.ModeOverflow, true}, []any{d.Mode, d.Allowed})
	shared := 0
	for _, c := range charges {
		if s.findOverflow(&s.shards[0], &c) != nil {
			shared++
		}
		assert.False(t, take(t, s, c).Allowed)
	}
	assert.Equal(t, []int{5, 3}, []int{s.entries(), shared})
}

// TestPinsEntries has a known key with a full quota beside a new one, and the shard is swept for
// the new key.
func TestPinsEntries(t *testing.T) {
	s, set := tiny(1)
	q := core.Quota{Limit: 1, Window: 10 * sec}
	known, another := sameShard(s, "known", q, 1)[0], sameShard(s, "another", q, 1)[0]
	take(t, s, known)
	set(10 * sec)
	d := take(t, s, another, known)
	assert.Equal(t, []any{core.ModeOverflow, true}, []any{d.Mode, d.Allowed})
	assert.False(t, take(t, s, known).Allowed)
	assert.False(t, take(t, s, another).Allowed)
}
