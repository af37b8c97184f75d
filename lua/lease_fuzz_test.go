package lua

import (
	"encoding/binary"
	"testing"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/fuzzloop"
)

// FuzzDecodeLeases gives the decoder replies that no script made.
func FuzzDecodeLeases(t *testing.F) {
	f := fuzzloop.New(t)
	f.Add([]byte{})
	f.Add(make([]byte, 2*8))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xfe\x00\x00\x00\x00\x00\x00\x00\x01"))
	leases := []core.Charge{{Rule: "a", Key: "x", Lease: 1}, {Rule: "b", Key: "y", Lease: 2}}
	f.Fuzz(func(t *testing.T, data []byte) {
		reply := make([]int64, len(data)/8)
		for i := range reply {
			reply[i] = int64(binary.BigEndian.Uint64(data[8*i:]))
		}
		held, err := DecodeLeases(reply, "limit", "p", leases)
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
