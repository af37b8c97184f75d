package proof

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/redisstore"
	"github.com/routelimit/limit/throttle"
)

const byteServerVar = "LIMIT_PROOF_BYTES" // the URL of Redis, in a server process

// bulk is 100 kB/s for each user, and trickle is 2 kB/s.
var (
	bulk    = limit.Named("bulk", throttle.Bandwidth(limit.ByUser, time.Second, 100_000))
	trickle = limit.Named("trickle", throttle.Bandwidth(limit.ByUser, time.Second, 2_000))
)

// An askedStore counts its calls.
type askedStore struct {
	core.Store
	asked atomic.Int64
}

func (s *askedStore) Take(ctx context.Context, asks []core.Ask) error {
	s.asked.Add(1)
	return s.Store.Take(ctx, asks)
}

// endless is a body without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// serveBytes serves until standard input ends.
func serveBytes(client *redis.Client) error {
	store := &askedStore{Store: redisstore.New(client, &patient)}
	limiter := limit.New(store, &limit.Options{Caller: limit.Caller[*http.Request]{User: func(r *http.Request) string { return r.URL.Query().Get("user") }}})
	endlessly := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.Copy(w, endless{}) })
	mux := http.NewServeMux()
	mux.Handle("/bulk", throttle.Limit(limiter, bulk, nil)(endlessly))
	mux.Handle("/trickle", throttle.Limit(limiter, trickle, nil)(endlessly))
	mux.HandleFunc("/idle", func(w http.ResponseWriter, r *http.Request) {
		w.Write(make([]byte, 4_000))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	mux.HandleFunc("/state", func(w http.ResponseWriter, _ *http.Request) {
		asked := store.asked.Load()
		status, _ := os.ReadFile("/proc/self/statm")
		var size, resident int64
		fmt.Sscan(string(status), &size, &resident)
		debug.FreeOSMemory() // collects garbage: what remains is in use
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		fmt.Fprintln(w, asked, resident*int64(os.Getpagesize()), m.HeapInuse+m.StackInuse, runtime.NumGoroutine())
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	server := &http.Server{Handler: mux}
	go func() {
		io.Copy(io.Discard, os.Stdin)
		server.Close()
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// byteServer starts a process that serves bytes, and returns its address.
func byteServer(t *testing.T, client *redis.Client) string {
	t.Helper()
	server := exec.Command(os.Args[0])
	server.Env = append(os.Environ(), fmt.Sprintf("%s=redis://%s/%d", byteServerVar, client.Options().Addr, client.Options().DB))
	server.Stderr = os.Stderr
	stop := must.Get(server.StdinPipe())(t)
	out := must.Get(server.StdoutPipe())(t)
	require.NoError(t, server.Start())
	t.Cleanup(func() {
		stop.Close()
		assert.NoError(t, server.Wait())
	})
	var addr string
	must.Get(fmt.Fscanln(out, &addr))(t)
	return "http://" + addr
}

// A byteState is what a server process reports about itself.
type byteState struct {
	asked, resident, inUse, goroutines int64
}

func stateOf(t *testing.T, base string) (s byteState) {
	t.Helper()
	response := must.Get(http.Get(base + "/state"))(t)
	defer response.Body.Close()
	must.Get(fmt.Fscan(response.Body, &s.asked, &s.resident, &s.inUse, &s.goroutines))(t)
	return s
}

// downloads fetches URLs until the test ends. It returns the count of their bytes once
// all downloads have begun.
func downloads(t *testing.T, urls []string) *atomic.Int64 {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	var bytes atomic.Int64
	var begun, ended sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		ended.Wait()
	})
	begun.Add(len(urls))
	for _, url := range urls {
		ended.Go(func() {
			buffer := make([]byte, 4<<10)
			first := sync.OnceFunc(begun.Done)
			defer first()
			r, err := http.NewRequestWithContext(ctx, "GET", url, nil)
			if !assert.NoError(t, err) {
				return
			}
			response, err := client.Do(r)
			if !assert.NoError(t, err) {
				return
			}
			defer response.Body.Close()
			for err == nil {
				var n int
				n, err = response.Body.Read(buffer)
				bytes.Add(int64(n))
				first()
			}
			assert.ErrorIs(t, err, context.Canceled)
		})
	}
	begun.Wait()
	return &bytes
}

// TestBandwidthOverProcesses runs three downloads of one user from two processes that
// share a Redis. Together they get the user's rate, after the burst has passed.
func TestBandwidthOverProcesses(t *testing.T) {
	client := redistest.Client(t)
	one, other := byteServer(t, client), byteServer(t, client)
	bytes := downloads(t, []string{one + "/bulk?user=alice", one + "/bulk?user=alice", other + "/bulk?user=alice"})
	time.Sleep(2 * time.Second)

	length, most := 3*time.Second, 0.03+0.034 // a permit is a thirtieth of 3 s
	if os.Getenv("LIMIT_PROOF_SECONDS") != "" {
		length, most = 10*time.Second, 0.03
	}
	var got, rate float64
	for try := 1; try == 1 || try <= 3 && math.Abs(got/100_000-1) > most; try++ { // a machine that stalls serves nothing
		asked := stateOf(t, one).asked + stateOf(t, other).asked
		before, start := bytes.Load(), time.Now()
		time.Sleep(length)
		seconds := time.Since(start).Seconds()
		got = float64(bytes.Load()-before) / seconds
		rate = float64(stateOf(t, one).asked+stateOf(t, other).asked-asked) / seconds
		t.Logf("three downloads of a user over two processes: %.0f bytes a second in %.3f s, %.2f %% of 100,000; "+
			"%.1f asks a second, %.1f for each connection", got, seconds, got/1000, rate, rate/3)
	}
	assert.InEpsilon(t, 100_000, got, most)
	assert.LessOrEqual(t, rate, 12.)
}

// TestBandwidthMemory holds 1,000 responses open in a process, or 200 in a short run:
// slowed ones of a user each, and idle ones. It asserts resident memory only in the
// long run, which has no race detector.
func TestBandwidthMemory(t *testing.T) {
	proof := os.Getenv("LIMIT_PROOF_SECONDS") != ""
	connections, settle, kinds := 200, 2*time.Second, []string{"idle", "trickle"}
	if proof {
		connections, settle, kinds = 1000, 10*time.Second, []string{"idle", "trickle", "bulk"}
	}
	client := redistest.Client(t)
	more := make(map[string]byteState)
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			base := byteServer(t, client)
			stateOf(t, base)
			none := stateOf(t, base)
			var urls []string
			for i := range connections {
				urls = append(urls, base+"/"+kind+"?user="+strconv.Itoa(i))
			}
			bytes := downloads(t, urls)
			time.Sleep(2 * time.Second) // the bursts, and what it takes to connect
			asked, before, start := stateOf(t, base).asked, bytes.Load(), time.Now()
			time.Sleep(settle)
			got, seconds := float64(bytes.Load()-before), time.Since(start).Seconds()
			s := stateOf(t, base)
			more[kind] = byteState{s.asked, s.resident - none.resident, s.inUse - none.inUse, s.goroutines - none.goroutines}
			t.Logf("%s: %d connections cost %.1f MiB resident, %.1f MiB of heap and stacks in use, %d goroutines; "+
				"%.0f bytes and %.2f asks a second for each", kind, connections,
				float64(more[kind].resident)/(1<<20), float64(more[kind].inUse)/(1<<20), more[kind].goroutines,
				got/seconds/float64(connections), float64(s.asked-asked)/seconds/float64(connections))
			if kind == "trickle" && proof {
				assert.InEpsilon(t, 2_000*connections, got/seconds, 0.15, "all of them are being slowed")
			}
		})
	}
	if proof {
		const most = int64(64 << 20)
		assert.Less(t, more["trickle"].resident, most, "more than none")
		assert.Less(t, more["bulk"].resident-more["idle"].resident, most, "more than as many that are not slowed")
	}
	assert.Less(t, more["trickle"].inUse, int64(80<<20*connections/1000))
	assert.Less(t, more["trickle"].goroutines, more["idle"].goroutines+100, "none for a slowed response")
}
