package prefetch

import (
	"testing"
	"time"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/stores/memstore"
)

// BenchmarkPermits is a request of one hot rule.
func BenchmarkPermits(b *testing.B) {
	store := New(memstore.New(nil), &Options{Rules: []Rule{{"p", "all"}}, Hold: time.Second})
	ctx := b.Context()
	quota := core.Quota{Algorithm: core.SlidingCells, Limit: core.MaxLimit, Window: 100_000_000, Cells: 10}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		asks := []core.Ask{{Charges: []core.Charge{{Policy: "p", Rule: "all", Quota: quota, Cost: 1}}}}
		for pb.Next() {
			_ = store.Take(ctx, asks)
		}
	})
}
