package lua

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestParts holds that the parts of a policy are one in each range of slots, and
// that their keys say whose they are.
func TestParts(t *testing.T) {
	assert.EqualValues(t, 0x31C3, crc16(0, "123456789"), "the check value of the specification")
	assert.Equal(t, crc16(0, "ab"), crc16(crc16(0, "a"), "b"))
	for _, policy := range []string{"", "POST /update", "p:1", "{}", strings.Repeat("x", 1000)} {
		for _, of := range []int{1, 2, 3, 16, 100, MaxParts} {
			for n := range of {
				key := Key(Part("limit", n, of), named(policy, "r", "k"))
				tag, _, _ := strings.Cut(strings.TrimPrefix(key, "limit:1:{"), "}")
				require.Equal(t, n, int(crc16(0, tag))%slots*of/slots, key)
				name, ok := ParseKey("limit", key)
				require.True(t, ok, key)
				require.Positive(t, name.Part)
				require.Equal(t, Name{Version: "1", Policy: policy, Rule: "r", Key: "k", Part: name.Part}, name)
			}
		}
	}
	// The tags are part of the stored form: keys must be found again.
	assert.Equal(t, "limit:1:{p:3}:r:k", Key(Part("limit", 2, 3), named("p", "r", "k")))
}

func BenchmarkPart(b *testing.B) {
	for _, of := range []int{6, MaxParts} {
		b.Run(fmt.Sprint(of), func(b *testing.B) {
			prefix := Part("limit", of/2, of)
			for i := range b.N {
				Key(prefix, named("POST /update", "per-ip-2s", fmt.Sprint(i)))
			}
		})
	}
}
