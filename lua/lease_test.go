package lua

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
)

func leased(id uint64) []core.Charge {
	list := charges("x", "all")
	list[1].Quota = core.Quota{Algorithm: core.Concurrency, Limit: 5, Window: 2_000_000}
	list[1].ID = id
	return list
}

func TestEncodeLeases(t *testing.T) {
	batch := [][]core.Charge{leased(1), leased(1 << 63), leased(0x0102030405060708)}
	_, args := NewRules("limit", "p", batch[0]).Encode("", 1, batch)
	assert.Equal(t, []any{7, int64(5), int64(2_000_000), 1, []byte(
		"\x00\x00\x00\x00\x00\x00\x00\x01\x80\x00\x00\x00\x00\x00\x00\x00\x01\x02\x03\x04\x05\x06\x07\x08")}, args[9:14])

	keys, args := EncodeLeases("limit", "p", "", 1, true, leased(1)[1:])
	assert.Equal(t, []string{"limit:1:{p}:b:all"}, keys)
	assert.Equal(t, []any{"", 1, 1, int64(2_000_000), []byte("\x00\x00\x00\x00\x00\x00\x00\x01")}, args)
	_, args = EncodeLeases("limit", "p", "123", 1, false, leased(1)[1:])
	assert.Equal(t, []any{"123", 1, 0}, args[:3])
}

func TestDecodeLeases(t *testing.T) {
	two := leased(1)
	held, err := DecodeLeases([]int64{1, 0}, "limit", "p", two)
	require.NoError(t, err)
	assert.Equal(t, []bool{true, false}, held)
	held, err = DecodeLeases([]int64{1, -2}, "limit", "p", two)
	assert.ErrorIs(t, err, ErrValue)
	assert.ErrorContains(t, err, "limit:1:{p}:b:all")
	assert.Equal(t, []bool{true, false}, held)
	for _, reply := range [][]int64{nil, {1}, {1, 0, 1}, {2, 0}, {-3, 0}} {
		_, err := DecodeLeases(reply, "limit", "p", two)
		assert.ErrorIs(t, err, ErrReply, "%v", reply)
	}
}
