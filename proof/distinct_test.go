package proof

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/memstore"
	"github.com/routelimit/limit/stores/redisstore"
)

// A shown is a value that an admitted request has shown.
type shown struct {
	at    time.Time
	value string
}

// TestDistinctAnyWindow has callers of several instances show values as fast as they
// can. No window may have more different ones than the limit.
func TestDistinctAnyWindow(t *testing.T) {
	const most, window = 7, 100 * time.Millisecond
	client := redistest.Client(t)
	for name, stores := range map[string][]core.Store{
		"memory": {memstore.New(nil)},
		"redis":  {redisstore.New(client, nil), redisstore.New(client, nil), redisstore.New(client, nil)},
	} {
		t.Run(name, func(t *testing.T) {
			rules := limit.Named("names", limit.Rule{Key: limit.ByIP, Limit: most, Window: window, Algorithm: limit.Distinct{Values: limit.ByHeader("X-User")}})
			var mu sync.Mutex
			var admitted []shown
			refused := 0
			var done sync.WaitGroup
			for caller := range 12 {
				policy := bind(limit.New(stores[caller%len(stores)], nil), rules)
				done.Go(func() {
					random := rand.New(rand.NewPCG(1, uint64(caller)))
					for end := time.Now().Add(proofTime() / 2); time.Now().Before(end); {
						// Some values are shown so often that they stay.
						value := fmt.Sprint(int(random.ExpFloat64() * 5))
						d, err := policy.Take(t.Context(), limit.Request{Keys: map[string]string{"ip": "192.0.2.1", "header X-User": value}})
						if !assert.NoError(t, err) {
							return
						}
						mu.Lock()
						if d.Allowed {
							admitted = append(admitted, shown{d.At, value})
						} else {
							refused++
						}
						mu.Unlock()
					}
				})
			}
			done.Wait()
			slices.SortStableFunc(admitted, func(a, b shown) int { return cmp.Compare(a.at.UnixMicro(), b.at.UnixMicro()) })
			in, first, full := make(map[string]int), 0, 0
			for i, s := range admitted {
				in[s.value]++
				for ; s.at.Sub(admitted[first].at) >= window; first++ {
					if in[admitted[first].value]--; in[admitted[first].value] == 0 {
						delete(in, admitted[first].value)
					}
				}
				require.LessOrEqual(t, len(in), most, "the window before request %d of those admitted", i)
				if len(in) == most {
					full++
				}
			}
			assert.NotZero(t, refused)
			assert.NotZero(t, full, "the limit is reached")
			t.Logf("%d admitted and %d refused: at most %d different values in any of %d windows, %d of which were full",
				len(admitted), refused, most, len(admitted), full)
		})
	}
}
