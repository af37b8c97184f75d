package engine

import (
	"crypto/sha256"
	"encoding/binary"
)

// ValueID returns the id of a charge for a value, which is the same in all processes. Clients choose
// values, so it is a part of a cryptographic hash: finding two values with one id takes
// billions of tries, and gains a client one value. No value has the id 0.
func ValueID(value string) uint64 {
	if value == "" {
		return 0
	}
	sum := sha256.Sum256([]byte(value))
	return max(1, binary.BigEndian.Uint64(sum[:]))
}
