package lua

import (
	"testing"

	"github.com/routelimit/limit/core"
)

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
