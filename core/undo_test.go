package core

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

// A till notes what it is given back.
type till struct {
	released []Charge
	returned []Return
	errs     [2]error
}

func (l *till) Release(_ context.Context, charges []Charge) error {
	l.released = charges
	return l.errs[0]
}

func (l *till) Return(_ context.Context, returns []Return) ([]Returned, error) {
	l.returned = returns
	return make([]Returned, len(returns)), l.errs[1]
}

func TestUndo(t *testing.T) {
	lease := Charge{Rule: "lease", Quota: Quota{Algorithm: Concurrency, Limit: 2, Window: 1e6}, Cost: 1, ID: 7}
	units := Charge{Rule: "units", Quota: Quota{Limit: 2, Window: 1e6}, Cost: 2}
	look := Charge{Rule: "look", Quota: units.Quota}
	d := NewDecision(5, 3)
	d.Allowed = true
	d.Outcomes()[2].Remaining = 3

	var l till
	assert.NoError(t, Undo(t.Context(), &l, []Charge{look, lease, units}, &d))
	assert.Equal(t, []Charge{lease}, l.released)
	assert.Equal(t, []Return{d.Return(2, units)}, l.returned)
	assert.EqualValues(t, 5, l.returned[0].At)
	assert.EqualValues(t, 3, l.returned[0].Remaining)

	l = till{}
	assert.NoError(t, Undo(t.Context(), &l, []Charge{look}, &d))
	assert.Equal(t, till{}, l, "nothing to give back, and no call")

	gone, wrong := fmt.Errorf("gone: %w", ErrUnavailable), errors.New("wrong")
	for _, errs := range [][3]error{{gone, wrong, wrong}, {wrong, gone, wrong}, {nil, gone, gone}, {gone, nil, gone}, {nil, wrong, wrong}} {
		l = till{errs: [2]error{errs[0], errs[1]}}
		assert.Equal(t, errs[2], Undo(t.Context(), &l, []Charge{lease, units}, &d))
	}
}
