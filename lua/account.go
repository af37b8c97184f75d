package lua

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/routelimit/limit/core"
)

// NewAccount encodes a call of account.lua. Prefix and now are as for [NewRules] and
// [Rules.Encode]. The caller replaces the last argument, 0, by the first number of a reply
// until that is 0: the holds of a key come in parts.
func NewAccount(prefix, now string, c *core.Charge) (script *Script, keys []string, args []any) {
	files, algorithm := newSelection(owing), ""
	if c.Quota.Algorithm.Owes() {
		files.addAlgorithms(1, func(int) *core.Quota { return &c.Quota })
		algorithm = strconv.Itoa(int(c.Quota.Algorithm))
	}
	hash, _ := HoldKeys(prefix, c)
	return files.join("account.lua"), []string{Key(prefix, c), hash},
		[]any{now, algorithm, c.Quota.Limit, c.Quota.Window, parameters(&c.Quota, now), 0}
}

// AddAccount adds what a reply says to an account.
func AddAccount(reply []int64, a *core.Account) error {
	if len(reply) != 6 || slices.Min(reply) < 0 {
		return fmt.Errorf("%w: %d for an account", ErrReply, reply)
	}
	a.Owed, a.Holds, a.Held, a.Ended = reply[1], a.Holds+reply[2], a.Held+reply[3], a.Ended+reply[5]
	if next := reply[4]; a.Next == 0 || next > 0 && next < a.Next {
		a.Next = next
	}
	return nil
}
