package lua

import (
	"encoding/binary"
	"fmt"

	"github.com/routelimit/limit/core"
)

// EncodeLeases returns the keys and the arguments of a call that renews or releases the leases of
// charges, and where in charges each number of its reply belongs. Now and grace are as for
// [Rules.Encode].
func EncodeLeases(prefix, now string, grace int, renew bool, charges []core.Charge) (keys []string, args []any, at []int) {
	type quota struct{ policy, rule, variant, key string }
	type group struct {
		window int64
		ids    []byte
		at     []int
	}
	var groups []group
	last := make(map[quota]int) // the last group of each key
	for i := range charges {
		c := &charges[i]
		of := quota{c.Policy, c.Rule, c.Variant, c.Key}
		g, known := last[of]
		if !known || groups[g].window != c.Quota.Window {
			g = len(groups)
			last[of] = g
			groups = append(groups, group{window: c.Quota.Window})
			keys = append(keys, Key(prefix, c))
		}
		groups[g].ids = appendID(groups[g].ids, c.ID)
		groups[g].at = append(groups[g].at, i)
	}
	act := 0
	if renew {
		act = 1
	}
	args = append(args, now, grace, act)
	for i := range groups {
		args = append(args, number(groups[i].window, 6), groups[i].ids)
		at = append(at, groups[i].at...)
	}
	return keys, args, at
}

// DecodeLeases returns whether the leases of charges were held. An error of one
// does not concern the others. At is that of EncodeLeases.
func DecodeLeases(reply []int64, at []int, prefix string, charges []core.Charge) (held []bool, err error) {
	if len(reply) != len(charges) {
		return nil, fmt.Errorf("%w: %d numbers for %d leases", ErrReply, len(reply), len(charges))
	}
	held = make([]bool, len(charges))
	for i, n := range reply {
		switch n {
		case 0, 1:
			held[at[i]] = n == 1
		case -1, -2:
			c := &charges[at[i]]
			err = wrong(-n, Key(prefix, c))
		default:
			return nil, fmt.Errorf("%w: %d of a lease", ErrReply, n)
		}
	}
	return held, err
}

// appendID appends the bytes of an id.
func appendID(b []byte, id uint64) []byte { return binary.BigEndian.AppendUint64(b, id) }
