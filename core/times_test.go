package core

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestTimeOf(t *testing.T) {
	d := NewDecision(100, MaxCharges)
	assert.EqualValues(t, 100, d.TimeOf(MaxCharges-1))
	before := d
	d.SetTimeOf(1, 90)
	d.SetTimeOf(2, 110)
	for i, want := range []int64{100, 90, 110, 100} {
		assert.Equal(t, want, d.TimeOf(i))
	}
	assert.EqualValues(t, 110, d.At, "the latest")
	assert.EqualValues(t, 100, before.TimeOf(1))
}
