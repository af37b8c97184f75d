package lua

import (
	"encoding/binary"

	"github.com/routelimit/limit/core"
)

// hasExtras reports whether charges need the lines of the script with @extra.
func hasExtras(charges []core.Charge) bool {
	for i := range charges {
		if charges[i].Alone || charges[i].Reserve > 0 {
			return true
		}
	}
	return false
}

// extrasOf returns the argument that those lines read, or nil: for each charge
// whether it decides alone:1, and its reserve:6.
func extrasOf(charges []core.Charge) []byte {
	if !hasExtras(charges) {
		return nil
	}
	var b []byte
	for i := range charges {
		word := uint64(charges[i].Reserve)
		if charges[i].Alone {
			word |= 1 << 48
		}
		b = append(b, binary.BigEndian.AppendUint64(nil, word)[1:]...)
	}
	return b
}
