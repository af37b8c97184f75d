package faultproxy

import (
	"context"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit/internal/redistest"
)

// TestCut has a client find every connection of its pool closed as soon as Cut
// returns, so that it sends nothing on one of them.
func TestCut(t *testing.T) {
	direct := redistest.Real(t)
	proxy := Start(t, direct.Options().Addr)
	const conns = 8
	client := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: proxy.Addr(), MaxRetries: -1, PoolSize: conns}))
	for round := range 300 {
		var all, done sync.WaitGroup
		all.Add(conns)
		for range conns {
			done.Go(func() {
				all.Done()
				all.Wait() // so that there are several connections
				if err := client.Ping(context.Background()).Err(); err != nil {
					t.Errorf("round %d: %v", round, err)
				}
			})
		}
		done.Wait()
		if t.Failed() {
			return
		}
		proxy.Cut()
	}
}
