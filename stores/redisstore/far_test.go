package redisstore

import (
	"bufio"
	"context"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/faultproxy"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/guard"
	"github.com/routelimit/limit/stores/storetest"
)

// A longWay dials a Redis that is far away in the time of a bubble: on the way nothing else
// takes time, however loaded the machine is.
type longWay struct {
	addr   string
	oneWay time.Duration
	silent atomic.Bool // commands are lost

	mu    sync.Mutex
	conns []net.Conn
}

type late struct {
	at  time.Time
	raw []byte
}

func (w *longWay) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	select {
	case <-time.After(2 * w.oneWay):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	server, err := net.Dial("tcp", w.addr)
	if err != nil {
		return nil, err
	}
	near, far := net.Pipe()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns = append(w.conns, near, far, server)
	commands, replies := make(chan late, 100), make(chan late, 100)
	go func() {
		defer close(commands)
		for r := bufio.NewReader(far); ; {
			raw, _, err := faultproxy.Read(r)
			if err != nil {
				return
			}
			commands <- late{time.Now().Add(w.oneWay), raw}
		}
	}()
	go func() {
		defer close(replies)
		r := bufio.NewReader(server)
		for c := range commands {
			time.Sleep(time.Until(c.at))
			if w.silent.Load() {
				continue
			}
			_, _ = server.Write(c.raw) // read fails too
			if raw, _, err := faultproxy.Read(r); err == nil {
				replies <- late{time.Now().Add(w.oneWay), raw}
			}
		}
	}()
	go func() {
		for c := range replies {
			time.Sleep(time.Until(c.at))
			_, _ = far.Write(c.raw)
		}
	}()
	return near, nil
}

// TestFarAway has 256 callers behind a guard start together on a Redis 40 ms away, which is silent
// for a second later. Both times Redis decides again a second or two later, as fast as before.
// What callers owe of the time without it must not keep it from that. The test runs in a process
// of its own: timers that the store keeps must not leave the bubble.
func TestFarAway(t *testing.T) {
	const env = "LIMIT_TEST_FAR_AWAY"
	if os.Getenv(env) == "" {
		self := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFarAway$", "-test.count=1")
		self.Env = append(os.Environ(), env+"="+redistest.Real(t).Options().Addr)
		out, err := self.CombinedOutput()
		require.NoError(t, err, string(out))
		return
	}
	synctest.Test(t, func(t *testing.T) {
		born = time.Now() // of the clock of the bubble: see ticks
		const callers, keys, roundTrip = 256, 1000, 40 * time.Millisecond
		way := &longWay{addr: os.Getenv(env), oneWay: roundTrip / 2}
		client := redis.NewClient(&redis.Options{PoolSize: 20, Dialer: way.dial, ContextTimeoutEnabled: true,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}}) // go-redis would hold a lock as it dials
		store := New(client, &Options{Prefix: t.Name()})
		store.now = func() string { return strconv.FormatInt(time.Now().UnixMicro(), 10) }
		guarded := guard.New(store, nil)
		bucket := core.Quota{Algorithm: core.TokenBucket, Limit: 100_000, Burst: 100_000, Window: 60_000_000}

		const seconds = 8
		var decided [seconds + 1]atomic.Int64
		began := time.Now()
		time.AfterFunc(3*time.Second, func() { way.silent.Store(true) })
		time.AfterFunc(4*time.Second, func() { way.silent.Store(false) })
		var done sync.WaitGroup
		for c := range callers {
			done.Go(func() {
				for i := 37 * c; time.Since(began) < seconds*time.Second; i++ {
					d := storetest.MustTake(t, guarded,
						core.Charge{Policy: "p", Rule: "client", Key: strconv.Itoa(i % keys), Quota: bucket, Cost: 1},
						core.Charge{Policy: "p", Rule: "all", Key: "all", Quota: bucket, Cost: 1})
					if d.Mode == core.ModeExact {
						decided[time.Since(began)/time.Second].Add(1)
					} else {
						time.Sleep(roundTrip)
					}
				}
			})
		}
		done.Wait()
		for _, second := range []int{2, seconds - 1} {
			t.Logf("second %d: %d", second, decided[second].Load())
			assert.Greater(t, decided[second].Load(), int64(0.6*callers*float64(time.Second/roundTrip)), "second %d", second)
		}
		client.Close()
		way.mu.Lock()
		for _, conn := range way.conns {
			conn.Close()
		}
		way.mu.Unlock()
		time.Sleep(time.Hour) // until all timers have fired
	})
}
