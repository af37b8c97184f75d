package redisstore

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/lua"
	"github.com/routelimit/limit/stores/storetest"
)

// TestOldReturns reads what the version before steps remembered of a bucket: nothing that
// was taken by then is given back, and all that is taken later is.
func TestOldReturns(t *testing.T) {
	client := redistest.Client(t)
	now := start
	store := at(client, &now)
	c := core.Charge{Policy: "p", Rule: "r", Key: "k", Quota: core.Quota{Algorithm: core.TokenBucket, Limit: 60, Window: 60_000_000, Burst: 60}, Cost: 5}
	take := func() core.Return {
		d := must.Get(storetest.Take(t.Context(), store, "p", []core.Charge{c}))(t)
		require.True(t, d.Allowed)
		now++
		return d.Return(0, c)
	}
	before := take()
	number := func(n int64, size int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n))[8-size:] }
	old := slices.Concat([]byte("r"), number(60, 6), number(60_000_000, 6), number(60, 6), number(now, 7), number(0, 7),
		[]byte(strings.Repeat("\x00", 12*9)))
	require.NoError(t, client.Set(t.Context(), lua.ReturnedKey("limit", &c), old, time.Minute).Err())
	now++
	other, after := take(), take()
	for _, r := range []struct {
		core.Return
		given int64
	}{{before, 0}, {other, 5}, {after, 5}} {
		given := must.Get(store.Return(t.Context(), []core.Return{r.Return}))(t)
		assert.Equal(t, r.given, given[0].Units)
	}
}
