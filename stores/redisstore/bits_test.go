package redisstore

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/storetest"
)

// bits32 has a script find what a Redis of 32 bits has: a C long for %d, and for digits of
// another base than 10.
const bits32 = `
local string, tonumber = setmetatable({format = function(f, ...)
  local values, n = {...}, 0
  for kind in string.gmatch(f, '%%[%d.]*(%a)') do
    n = n + 1
    if kind == 'd' and math.abs(values[n] + 0) >= 2147483648 then values[n] = -2147483648 end
  end
  return string.format(f, unpack(values))
end}, {__index = string}), function(s, base)
  local n = tonumber(s, base or 10)
  return n and base and math.min(n, 4294967295) or n
end
`

// on32Bits returns a client whose scripts run as on a Redis of 32 bits.
func on32Bits(t *testing.T) *redis.Client {
	client := redistest.Client(t)
	before(client, isTake, func(cmd redis.Cmder) {
		if args := cmd.Args(); cmd.Name() == "eval" {
			args[1] = bits32 + args[1].(string)
		} else {
			args[1] = strings.Repeat("0", 40) // no script: the store sends the text
		}
	})
	return client
}

// TestOn32Bits takes, holds, settles and gives back units of the longest windows, whose TTLs in ms
// have more than 32 bits, and ends holds, whose ids have.
func TestOn32Bits(t *testing.T) {
	client := on32Bits(t)
	h := harness(client)
	store := h.Store.(*Store)
	for i, q := range quotasOfAllForms {
		q.Window = core.MaxWindow
		c := core.Charge{Policy: "p", Rule: "r", Key: fmt.Sprint(i), Cost: 1, Quota: q, ID: 1}
		d := storetest.MustTake(t, store, c)
		if q.Spends() && !q.Leases() {
			other := c
			other.Key = "other" + c.Key
			storetest.MustTake(t, store, other)
			o := storetest.MustTake(t, store, other)
			list := []core.Return{d.Return(0, c), o.Return(0, other)}
			for _, list := range [][]core.Return{list[:1], list[1:], list} { // of one unit, of two, and to two keys
				_, err := storetest.Return(t.Context(), store, "p", list)
				require.NoError(t, err, "%+v", q)
				storetest.MustTake(t, store, c)
				storetest.MustTake(t, store, other)
			}
		}
		if c.Key, c.Cost = "held"+c.Key, 2; q.Holds() {
			ask, held := core.Ask{Charges: []core.Charge{c}}, core.Hold{ID: core.HoldIDOf("a"), Life: core.MinHold}
			require.NoError(t, store.Hold(t.Context(), &ask, &held))
			done, err := store.Settle(t.Context(), []core.Settlement{{Return: ask.Decision.Return(0, c), Hold: held.ID, Used: 1}})
			require.NoError(t, err, "%+v", q)
			require.Equal(t, core.HoldLives, done[0].Found)
		}
	}
	storetest.Holds(t, h, 1, 10)
}
