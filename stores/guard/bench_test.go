package guard

import (
	"context"
	"fmt"
	"testing"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/stores/storetest"
)

// An echo is a store that admits everything at once.
type echo struct{ core.Store }

func (echo) Take(_ context.Context, asks []core.Ask) error {
	for i := range asks {
		asks[i].Decision = core.NewDecision(1, len(asks[i].Charges))
		asks[i].Decision.Allowed = true
	}
	return nil
}

// BenchmarkTake measures what the guard adds to a store that answers at once: while
// the store works, with a share, and while it is unavailable.
func BenchmarkTake(b *testing.B) {
	for _, rules := range []int{1, 2} {
		var charges []core.Charge
		for i := range rules {
			charges = append(charges, core.Charge{Rule: fmt.Sprint(i), Key: "203.0.113.7", Cost: 1,
				Quota: core.Quota{Algorithm: core.LeakyBucket, Limit: core.MaxLimit, Window: sec, Burst: core.MaxLimit}})
		}
		for _, test := range []struct {
			name      string
			instances int
			open      bool
		}{{"exact", 1, false}, {"exact, one of 3", 3, false}, {"local", 1, true}} {
			b.Run(fmt.Sprintf("%s, %d rules", test.name, rules), func(b *testing.B) {
				s := New(echo{nil}, &Options{Instances: test.instances})
				if test.open {
					s.breaker.until.Store(probing)
				}
				b.ReportAllocs()
				for b.Loop() {
					if d, err := core.Take(context.Background(), s, storetest.Of("p", charges...)); err != nil || !d.Allowed {
						b.Fatal(d, err)
					}
				}
			})
		}
	}
}
