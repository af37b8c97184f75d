package limit

import (
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestWaitAcrossChange has requests of an old version and of a new one wait for one key
// of one rule, which has another place among the rules. Each is admitted in its time.
func TestWaitAcrossChange(t *testing.T) {
	for _, change := range [][2]string{
		{"a: 9/1s global refuse wait 10s; b: 1/1s global refuse wait 10s", "b: 1/1s global refuse wait 10s"},
		{"b: 1/1s global refuse wait 10s", "a: 9/1s global refuse wait 10s; b: 1/1s global refuse wait 10s"},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := New(nil, nil)
			h := l.Limit(Named("p", MustParse(change[0]).Rules()...).Overridable())(nothing)
			var done sync.WaitGroup
			for i := range 6 {
				if i == 3 {
					require.NoError(t, l.change(Named("p", MustParse(change[1]).Rules()...)))
				}
				done.Go(func() {
					w, _ := patient(t.Context(), h, "")
					assert.Equal(t, http.StatusNoContent, w.Code, i)
				})
				synctest.Wait()
			}
			began := time.Now()
			done.Wait()
			assert.InDelta(t, 5*time.Second, time.Since(began), float64(time.Millisecond))
			assert.Zero(t, l.engine.Queues.Len())
		})
	}
}

// TestWaitOfTwoSets has requests of two sets on one route wait for the rule that both
// have, in different places.
func TestWaitOfTwoSets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(nil, nil)
		first := l.Limit(MustParse("a: 9/1s global refuse wait 10s; b: 1/1s global refuse wait 10s"))(nothing)
		second := l.Limit(MustParse("b: 1/1s global refuse wait 10s"))(nothing)
		var done sync.WaitGroup
		for i := range 6 {
			h := first
			if i%2 > 0 {
				h = second
			}
			done.Go(func() {
				w, _ := patient(t.Context(), h, "")
				assert.Equal(t, http.StatusNoContent, w.Code, i)
			})
			synctest.Wait()
		}
		done.Wait()
		assert.Zero(t, l.engine.Queues.Len())
	})
}
