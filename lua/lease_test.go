package lua

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
)

func leased(id uint64) []core.Charge {
	list := charges("x", "all")
	list[1].Quota = core.Quota{Algorithm: core.Concurrency, Limit: 5, Window: 2_000_000}
	list[1].ID = id
	return list
}

func TestEncodeLeases(t *testing.T) {
	requests := batch(leased(1), leased(1<<63), leased(0x0102030405060708))
	_, args := NewRules("limit", requests[0]).Encode("", 1, requests)
	assert.Equal(t, specOf(ofLog(5, 1), "\x07"+"\x00\x00\x00\x00\x00\x05"+"\x00\x00\x00\x1e\x84\x80"+"\x00\x01\x00\x1e"+"\x00\x00\x00\x1e\x84\x80"+
		"\x00\x00\x00\x00\x00\x00\x00\x01\x80\x00\x00\x00\x00\x00\x00\x00\x01\x02\x03\x04\x05\x06\x07\x08"), args[3])

	keys, args, at := EncodeLeases("limit", "", 1, true, leased(1)[1:])
	assert.Equal(t, []string{"limit:1:{p}:b:all"}, keys)
	assert.Equal(t, []any{"", 1, 1, "\x00\x00\x00\x1e\x84\x80", []byte("\x00\x00\x00\x00\x00\x00\x00\x01")}, args)
	assert.Equal(t, []int{0}, at)
	_, args, _ = EncodeLeases("limit", "123", 1, false, leased(1)[1:])
	assert.Equal(t, []any{"123", 1, 0}, args[:3])

	// Leases of a key are together, unless their windows differ.
	var mixed []core.Charge
	for i, key := range []string{"k", "l", "k", "k", "k"} {
		c := leased(uint64(i + 1))[1]
		if c.Key = key; i == 3 {
			c.Quota.Window = 1_000_000
		}
		mixed = append(mixed, c)
	}
	keys, args, at = EncodeLeases("limit", "", 1, true, mixed)
	assert.Equal(t, []string{"limit:1:{p}:b:k", "limit:1:{p}:b:l", "limit:1:{p}:b:k", "limit:1:{p}:b:k"}, keys)
	assert.Equal(t, []any{"\x00\x00\x00\x1e\x84\x80", []byte("\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x03")}, args[3:5])
	assert.Equal(t, []any{"\x00\x00\x00\x0f\x42\x40", []byte("\x00\x00\x00\x00\x00\x00\x00\x04")}, args[7:9])
	assert.Equal(t, []int{0, 2, 1, 3, 4}, at)
	held := must.Get(DecodeLeases([]int64{1, 0, 1, 0, 1}, at, "limit", mixed))(t)
	assert.Equal(t, []bool{true, true, false, false, true}, held)
}

func TestDecodeLeases(t *testing.T) {
	two := leased(1)
	held := must.Get(DecodeLeases([]int64{1, 0}, []int{0, 1}, "limit", two))(t)
	assert.Equal(t, []bool{true, false}, held)
	held, err := DecodeLeases([]int64{1, -2}, []int{0, 1}, "limit", two)
	assert.ErrorIs(t, err, ErrValue)
	assert.ErrorContains(t, err, "limit:1:{p}:b:all")
	assert.Equal(t, []bool{true, false}, held)
	for _, reply := range [][]int64{nil, {1}, {1, 0, 1}, {2, 0}, {-3, 0}} {
		_, err := DecodeLeases(reply, []int{0, 1}, "limit", two)
		assert.ErrorIs(t, err, ErrReply, "%v", reply)
	}
}

// FuzzDecodeLeases gives the decoder replies that no script made.
func FuzzDecodeLeases(f *testing.F) {
	f.Add(true, []byte{})
	f.Add(true, make([]byte, 2*8))
	f.Add(false, []byte("\xff\xff\xff\xff\xff\xff\xff\xfe\x00\x00\x00\x00\x00\x00\x00\x01"))
	leases := []core.Charge{{Rule: "a", Key: "x", ID: 1}, {Rule: "b", Key: "y", ID: 2}}
	f.Fuzz(func(t *testing.T, fits bool, data []byte) {
		reply := replyOf(data, fits, len(leases))
		held, err := DecodeLeases(reply, []int{0, 1}, "limit", leases)
		if err == nil && len(held) != len(leases) || held != nil && len(held) != len(leases) {
			t.Fatalf("%v, %v", held, err)
		}
		for i := range held {
			if held[i] != (reply[i] == 1) {
				t.Fatalf("%v of %v", held, reply)
			}
		}
	})
}
