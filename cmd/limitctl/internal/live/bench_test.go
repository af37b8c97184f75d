package live

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redisfacts"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/redisstore"
)

// BenchmarkTop measures how many keys are looked at in a second, and how busy Redis is
// with them, without a pace and with the usual one.
func BenchmarkTop(b *testing.B) {
	client := redistest.Real(b)
	store := redisstore.New(client, nil)
	keys := 50_000
	if text := os.Getenv("LIMITCTL_BENCH_KEYS"); text != "" {
		keys, _ = strconv.Atoi(text)
	}
	var takes sync.WaitGroup
	for part := range 100 {
		takes.Go(func() {
			for i := part; i < keys; i += 100 {
				charge := chargesOf("p", "5/1h per ip", fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255))
				for range 1 + i%5 {
					if _, err := core.Take(b.Context(), store, charge); err != nil {
						b.Error(err)
					}
				}
			}
		})
	}
	takes.Wait()
	l := must.Get(New(client, []Policy{{Name: "p", Rules: rulesOf("5/1h per ip")}}, Options{Prefix: "limit"}))(b)
	busy := func() float64 {
		info := must.Get(redisfacts.Info(b.Context(), client))(b)
		user, _ := strconv.ParseFloat(info["used_cpu_user"], 64)
		system, _ := strconv.ParseFloat(info["used_cpu_sys"], 64)
		return user + system
	}
	for _, pace := range []int{1_000_000, 20_000} {
		b.Run(fmt.Sprint("pace=", pace), func(b *testing.B) {
			before := busy()
			seconds := 0.0
			for b.Loop() {
				a := must.Get(l.Top(b.Context(), client, Question{At: 80, N: 20, Scan: 10_000_000, Pace: pace}))(b)
				require.Equal(b, keys, a.Known)
				seconds += a.Took
			}
			looked := float64(keys * b.N)
			b.ReportMetric(looked/seconds, "keys/s")
			b.ReportMetric((busy()-before)/looked*1e6, "µs-of-redis/key")
			b.ReportMetric(100*(busy()-before)/seconds, "%-of-redis")
		})
	}
}
