package limit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/redisstore"
)

// apart has a header of its own, as the writer of a request that a handler makes.
type apart struct {
	http.ResponseWriter
	header http.Header
}

func (w apart) Header() http.Header { return w.header }

func TestCostOfLayers(t *testing.T) {
	for name, rule := range map[string]limit.Rule{
		"log":    limit.PerIP(time.Minute, 50_000),
		"cells":  {Key: limit.ByIP, Limit: 1_000_000, Window: time.Minute, Algorithm: limit.SlidingCells{}},
		"bucket": {Key: limit.ByIP, Limit: 1_000_000, Window: time.Minute, Algorithm: limit.TokenBucket{Burst: 1_000_000}},
		"fixed":  {Key: limit.ByIP, Limit: 1_000_000, Window: time.Minute, Algorithm: limit.FixedWindow{}},
	} {
		for _, conc := range []int{1, 64} {
			var least [2]float64
			for range 3 {
				for i, gives := range []bool{false, true} {
					client := redistest.Real(t)
					l := limit.New(redisstore.New(client, nil), nil)
					app, err := l.Policy(limit.Named("app", rule))
					require.NoError(t, err)
					inner := l.Limit(limit.Named("route", limit.PerIP(time.Minute, 5)))(ok200)
					h := app.Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						if !gives {
							w = apart{w, http.Header{}}
						}
						inner.ServeHTTP(w, r)
					}))
					n := 8000
					client.ConfigResetStat(t.Context())
					var wg sync.WaitGroup
					for c := range conc {
						wg.Go(func() {
							for i := range n / conc {
								r := httptest.NewRequest("GET", "/", nil)
								if i%10 == 0 {
									r.RemoteAddr = fmt.Sprintf("10.%d.%d.%d:1", c, i>>8&255, i&255)
								}
								h.ServeHTTP(httptest.NewRecorder(), r)
							}
						})
					}
					wg.Wait()
					info := client.Info(t.Context(), "commandstats").Val()
					var calls, usec float64
					fmt.Sscanf(info[strings.Index(info, "cmdstat_evalsha:"):], "cmdstat_evalsha:calls=%f,usec=%f", &calls, &usec)
					if us := usec / float64(n); least[i] == 0 || us < least[i] {
						least[i] = us
					}
				}
			}
			t.Logf("%s, %d at once: %.1f and %.1f us of Redis a request: %.2f", name, conc, least[0], least[1], least[1]/least[0])
		}
	}
}
