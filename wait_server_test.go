package limit

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/guard"
	"github.com/routelimit/limit/stores/redisstore"
)

// TestManyWaitingClients has many clients of a server wait for one slot on Redis, of which half
// disconnect. The others are served in the order in which they came, and nothing is left
// of any: no place in a queue, no lease, no goroutine, no memory.
func TestManyWaitingClients(t *testing.T) {
	const clients = 300
	// On a busy machine a call may take longer than usual: a lease of a call that timed
	// out would keep the slot for its Window.
	store := guard.New(redisstore.New(redistest.Client(t), &redisstore.Options{Timeout: time.Minute}), &guard.Options{Slow: time.Minute})
	l := New(store, nil)
	p := mustPolicy(l, Named("slot", Rule{Key: Everyone, Limit: 1, Algorithm: Concurrency{}}).OnRefusal(Refusal{Wait: time.Minute, Waiters: clients}))
	var mu sync.Mutex
	var order []int
	server := httptest.NewServer(p.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i, _ := strconv.Atoi(r.Header.Get("X-Key"))
		mu.Lock()
		defer mu.Unlock()
		order = append(order, i)
	})))
	defer server.Close()
	held := func() Decision { // the only slot
		d, err := p.Wait(t.Context(), Request{}) // for the lease of the last client
		require.NoError(t, err)
		return d
	}
	waiting := func(n int64) {
		t.Helper()
		deadline := time.Now().Add(20 * time.Second)
		for l.engine.Queues.Len() != n {
			require.True(t, time.Now().Before(deadline), "%d waiting", n)
			runtime.Gosched()
		}
	}
	round := func(clients int) {
		d := held()
		conns := make([]net.Conn, clients)
		for i := range conns {
			conn := must.Get(net.Dial("tcp", server.Listener.Addr().String()))(t)
			defer conn.Close()
			conns[i] = conn
			fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: x\r\nX-Key: %d\r\nConnection: close\r\n\r\n", i)
			waiting(int64(i + 1))
		}
		var want []int
		for i, conn := range conns {
			if i%2 == 0 {
				conn.Close()
			} else {
				want = append(want, i)
			}
		}
		waiting(int64(len(want)))
		d.Release()
		waiting(0)
		held().Release() // the last one has released its lease
		mu.Lock()
		defer mu.Unlock()
		assert.Equal(t, want, order)
		order = nil
	}
	usage := func() (goroutines int, heap int64) {
		server.CloseClientConnections()
		var stats runtime.MemStats
		for range 2 { // a pool is emptied by two
			runtime.GC()
		}
		runtime.ReadMemStats(&stats)
		return runtime.NumGoroutine(), int64(stats.HeapAlloc)
	}

	round(clients) // which leaves what the runtime and the server keep
	goroutines, heap := usage()
	round(clients)
	redistest.Await(t, 10*time.Second, "goroutines end", func() bool {
		n, _ := usage()
		return n <= goroutines
	})
	_, after := usage()
	t.Logf("%d goroutines before and after, heap %+d B", goroutines, after-heap)
	assert.Less(t, after-heap, int64(256<<10))
}
