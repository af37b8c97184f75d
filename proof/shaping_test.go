package proof

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/redisstore"
)

const (
	shapingVar  = "LIMIT_PROOF_SHAPING" // the URL of Redis, in a process that serves
	shapingStep = 20 * time.Millisecond
)

// TestShapingServer is the process that serves. It answers each request with its slot,
// its delay, and the time at which its handler ran, in µs.
func TestShapingServer(t *testing.T) {
	url := os.Getenv(shapingVar)
	if url == "" {
		t.Skip("run by TestShaping")
	}
	options := must.Get(redis.ParseURL(url))(t)
	limiter := limit.New(redisstore.New(redis.NewClient(options), nil), &limit.Options{
		Observe: func(r *http.Request, d limit.Decision, err error) {
			if err != nil {
				panic(err)
			}
			r.Header.Set("Turn", fmt.Sprint(d.At.Add(d.Delay).UnixMicro(), d.Delay.Microseconds()))
		}})
	mux := http.NewServeMux()
	mux.Handle("GET /shaped", limiter.Limit(limit.Rules(limit.Rule{Key: limit.Everyone, Limit: 50, Window: time.Second, Algorithm: limit.Queue{Burst: 300}}))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, r.Header.Get("Turn"), time.Now().UnixMicro())
	})))
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	fmt.Println("serving", listener.Addr())
	go func() { // until the test closes the pipe
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	t.Fatal(http.Serve(listener, mux))
}

func startShapingServer(t *testing.T, client *redis.Client) (addr string) {
	server := exec.Command(os.Args[0], "-test.run=^TestShapingServer$")
	server.Env = append(os.Environ(), fmt.Sprintf("%s=redis://%s/%d", shapingVar, client.Options().Addr, client.Options().DB))
	server.Stderr = os.Stderr
	in := must.Get(server.StdinPipe())(t)
	out := must.Get(server.StdoutPipe())(t)
	require.NoError(t, server.Start())
	t.Cleanup(func() {
		_ = in.Close()
		_ = server.Wait()
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if addr, ok := strings.CutPrefix(lines.Text(), "serving "); ok {
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return addr
		}
	}
	t.Fatal("the server did not start")
	return ""
}

// TestShaping sends requests at once to two processes that share a queue of 50 requests
// a second. The slots are 20 ms apart over both processes. Some clients disconnect,
// which never makes the rate faster.
func TestShaping(t *testing.T) {
	requests := 60
	if os.Getenv("LIMIT_PROOF_SECONDS") != "" {
		requests = 200
	}
	for _, leaving := range []bool{false, true} {
		t.Run(fmt.Sprintf("leaving=%v", leaving), func(t *testing.T) {
			client := redistest.Client(t)
			servers := []string{startShapingServer(t, client), startShapingServer(t, client)}
			for _, server := range servers { // connects to Redis, or the first requests may come later than a step
				answer := must.Get(http.Get("http://" + server + "/shaped"))(t)
				_ = answer.Body.Close()
			}
			var mu sync.Mutex
			var turns, ran []int64
			idle := map[int64]bool{} // turns of requests that found the queue empty
			var wait sync.WaitGroup
			gone := 0
			for i := range requests {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				leaves := leaving && rand.IntN(4) == 0
				if leaves {
					gone++
					time.AfterFunc(time.Duration(rand.IntN(requests*20))*time.Millisecond, cancel)
				}
				wait.Go(func() {
					r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+servers[i%2]+"/shaped", nil)
					answer, err := http.DefaultClient.Do(r)
					if err != nil {
						assert.True(t, leaves && errors.Is(err, context.Canceled), err)
						return
					}
					defer answer.Body.Close()
					var turn, delay, at int64
					_, err = fmt.Fscan(answer.Body, &turn, &delay, &at)
					if leaves && errors.Is(err, context.Canceled) {
						return
					}
					assert.NoError(t, err)
					mu.Lock()
					defer mu.Unlock()
					turns, ran = append(turns, turn), append(ran, at)
					idle[turn] = delay == 0
				})
			}
			wait.Wait()
			slices.Sort(turns)
			slices.Sort(ran)
			if !leaving {
				require.Len(t, turns, requests)
			}
			require.GreaterOrEqual(t, len(turns), requests-gone)
			least, most, within := shapingSteps(ran)
			t.Logf("%d of %d requests came out, %d clients had left; steps between handlers: %v to %v, %d of %d within 20 ± 2 ms",
				len(ran), requests, gone, least, most, within, len(ran)-1)
			least, most, _ = shapingSteps(turns)
			t.Logf("steps between turns: %v to %v", least, most)
			// Slots are rounded up to the microsecond, each by less than one.
			assert.GreaterOrEqual(t, least, shapingStep-time.Microsecond)
			if leaving {
				return
			}
			waited := 0
			for i := 1; i < len(turns); i++ {
				if idle[turns[i]] { // on a busy machine it may come later than a step
					continue
				}
				waited++
				assert.LessOrEqual(t, turns[i]-turns[i-1], (shapingStep + time.Microsecond).Microseconds())
			}
			assert.Greater(t, waited, requests/2)
		})
	}
}

// shapingSteps returns the shortest and the longest step between sorted times in µs, and
// how many are correct within 2 ms.
func shapingSteps(times []int64) (least, most time.Duration, within int) {
	least = time.Hour
	for i := 1; i < len(times); i++ {
		step := time.Duration(times[i]-times[i-1]) * time.Microsecond
		least, most = min(least, step), max(most, step)
		if (step - shapingStep).Abs() <= 2*time.Millisecond {
			within++
		}
	}
	return least, most, within
}
