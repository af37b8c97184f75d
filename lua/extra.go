package lua

import (
	"slices"

	"github.com/routelimit/limit/core"
)

// reservesOf returns the argument that lines of the script with @extra read, or nil if
// it needs none of them: for each charge of a request its reserve:6.
func (l *Rules) reservesOf(several bool) (b []byte) {
	if !several && !slices.ContainsFunc(l.charges, func(c core.Charge) bool { return c.Reserve > 0 }) {
		return nil
	}
	for i := range l.charges {
		b = append(b, appendID(nil, uint64(l.charges[i].Reserve))[2:]...)
	}
	return b
}

// shapeOf returns the argument that lines with @several read, or nil if there is one
// ask: for each the number of its charges:1, and of each the number of its rule:1.
func (l *Rules) shapeOf(asks []core.Ask) (b []byte) {
	if len(asks) == 1 {
		return nil
	}
	n := 0
	for i := range asks {
		b = append(b, byte(len(asks[i].Charges)))
		for range asks[i].Charges {
			b = append(b, byte(l.places[n].rule+1))
			n++
		}
	}
	return b
}
