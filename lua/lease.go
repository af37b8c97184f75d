package lua

import (
	"encoding/binary"
	"fmt"

	"github.com/routelimit/limit/core"
)

// EncodeLeases returns the keys and the arguments of a call that renews or
// releases the leases of charges. Now is empty but in tests; grace is the
// milliseconds that a key outlives its last lease.
func EncodeLeases(prefix, policy, now string, grace int, renew bool, charges []core.Charge) (keys []string, args []any) {
	act := 0
	if renew {
		act = 1
	}
	args = append(args, now, grace, act)
	for _, c := range charges {
		keys = append(keys, Key(prefix, policy, c.Rule, c.Key))
		args = append(args, c.Quota.Window, appendID(nil, c.ID))
	}
	return keys, args
}

// DecodeLeases returns whether the leases of charges were held. An error of one
// does not concern the others.
func DecodeLeases(reply []int64, prefix, policy string, charges []core.Charge) (held []bool, err error) {
	if len(reply) != len(charges) {
		return nil, fmt.Errorf("%w: %d numbers for %d leases", ErrReply, len(reply), len(charges))
	}
	held = make([]bool, len(charges))
	for i, n := range reply {
		switch n {
		case 0, 1:
			held[i] = n == 1
		case -1, -2:
			err = wrong(-n, Key(prefix, policy, charges[i].Rule, charges[i].Key))
		default:
			return nil, fmt.Errorf("%w: %d of a lease", ErrReply, n)
		}
	}
	return held, err
}

// appendID appends the bytes of an id.
func appendID(b []byte, id uint64) []byte { return binary.BigEndian.AppendUint64(b, id) }

// idsOf returns the ids of the charges of rule r in decisions.
func idsOf(decisions [][]core.Charge, r int) []byte {
	b := make([]byte, 0, 8*len(decisions))
	for _, charges := range decisions {
		b = appendID(b, charges[r].ID)
	}
	return b
}
