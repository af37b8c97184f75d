package proof

import (
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit/core"
)

func TestBusyExplore(t *testing.T) {
	redis.SetLogger(quiet{})
	recoveryLimit = 90000
	for _, r := range recoveries {
		if r.idle > 0 || r.lasts > 10*time.Second {
			continue
		}
		t.Run(r.name, func(t *testing.T) {
			f := newRecoveryFleet(t, r.timeout)
			stop := make(chan struct{})
			var done sync.WaitGroup
			var longest [3]time.Duration
			var strayed [8][3]time.Time
			var mu sync.Mutex
			for i := range 4 * 3 * len(recoveryQuotas) {
				done.Go(func() {
					for tick := time.Tick(5 * time.Millisecond); ; <-tick {
						select {
						case <-stop:
							return
						default:
							began := time.Now()
							d := f.take(i%3, i/3%len(recoveryQuotas))
							now := time.Now()
							mu.Lock()
							longest[i%3] = max(longest[i%3], now.Sub(began))
							if d.Mode != core.ModeExact {
								strayed[i/3%len(recoveryQuotas)][i%3] = now
							}
							mu.Unlock()
						}
					}
				})
			}
			time.Sleep(300 * time.Millisecond)
			end := r.outage(f)
			time.Sleep(r.lasts)
			end()
			f.mu.Lock()
			f.end = time.Now()
			f.mu.Unlock()
			time.Sleep(3 * time.Second)
			close(stop)
			done.Wait()
			for q := range recoveryQuotas {
				var s [3]time.Duration
				for i := range s {
					if !strayed[q][i].IsZero() {
						s[i] = strayed[q][i].Sub(f.end).Round(time.Millisecond)
					}
				}
				n := f.counts(q)
				t.Logf("%-16s strayed until %v, admitted %d, counted %+d", recoveryCharge(q).Variant, s, f.admitted[q], n-f.admitted[q])
			}
			t.Logf("longest %v", longest)
		})
	}
}
