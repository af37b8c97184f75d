package limit

import (
	"slices"

	"github.com/routelimit/limit/core"
)

// A scratch holds the charges of one decision while it is made. The next decision on
// the route uses it again, with other keys and costs.
type scratch struct {
	of      *[]core.Charge // what charges are a copy of: route.charges
	charges []core.Charge
	caller  caller
	applied caller  // that charges are of; the zero caller if they are as in of
	waiter  *waiter // for a request that may wait, if there was one before
}

func (r *route) scratch() *scratch {
	s, ok := r.scratches.Get().(*scratch)
	if !ok {
		s = new(scratch)
	}
	switch of := r.charges.Load(); {
	case s.of != of:
		s.of, s.charges = of, slices.Clone(*of)
		s.applied = caller{}
	case s.applied.exempt != 0:
		copy(s.charges, *of)
		s.applied = caller{}
	}
	return s
}

// put puts a scratch back, without the strings of the request.
func (r *route) put(s *scratch) {
	for i := range s.charges {
		s.charges[i].Key = ""
	}
	r.scratches.Put(s)
}

// free makes the charges cost nothing: they look without taking.
func (s *scratch) free() *scratch {
	for i := range s.charges {
		s.charges[i].Cost = 0
	}
	return s
}
