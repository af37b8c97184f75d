package redisstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/faultproxy"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/storetest"
)

// many is how many requests a test of counts makes: LIMIT_REQUESTS, or few.
func many() int {
	if n, err := strconv.Atoi(os.Getenv("LIMIT_REQUESTS")); err == nil {
		return n
	}
	return 1500
}

// TestLostReplies loses the reply to every fifth call, and asks Redis how many
// requests it has counted.
func TestLostReplies(t *testing.T) {
	direct := redistest.Real(t)
	proxy := faultproxy.Start(t, direct.Options().Addr)
	for name, client := range clients(t, proxy.Addr()) {
		for _, callers := range []int{1, 16} {
			t.Run(fmt.Sprint(name, "/", callers), func(t *testing.T) {
				require.NoError(t, direct.FlushDB(t.Context()).Err())
				charges, counted := counter(t, direct)
				store := New(client, &Options{Timeout: 10 * time.Second})
				proxy.Break(func(c faultproxy.Command) faultproxy.Fault {
					if c.Name == "evalsha" && c.Number%5 == 0 {
						return faultproxy.Fault{Kind: faultproxy.LoseReply}
					}
					return faultproxy.Fault{}
				})
				defer proxy.Break(nil)
				var asked, decided, failed atomic.Int64
				var done sync.WaitGroup
				for range callers {
					done.Go(func() {
						for asked.Add(1) <= int64(many()) {
							if _, err := storetest.Take(context.Background(), store, "p", charges); err == nil {
								decided.Add(1)
							} else if errors.Is(err, core.ErrUnavailable) {
								failed.Add(1)
							} else {
								t.Error(err)
							}
						}
					})
				}
				done.Wait()
				n := counted()
				t.Logf("asked %d: decided %d, without an answer %d; Redis counted %d", many(), decided.Load(), failed.Load(), n)
				assert.Positive(t, failed.Load())
				assert.LessOrEqual(t, n, int64(many()), "no request counts twice")
				assert.GreaterOrEqual(t, n, decided.Load(), "each decision counts")
			})
		}
	}
}

// TestCutAtEveryByte ends the connection at each byte of a request and of its
// reply: a decision counts once or never, and what is decided is right.
func TestCutAtEveryByte(t *testing.T) {
	direct := redistest.Real(t)
	proxy := faultproxy.Start(t, direct.Options().Addr)
	client := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: proxy.Addr()}))
	store := New(client, &Options{Timeout: 10 * time.Second})
	charges, counted := counter(t, direct)
	storetest.MustTake(t, store, charges...)
	for _, kind := range []faultproxy.Kind{faultproxy.CutRequest, faultproxy.CutReply} {
		size, decided := 100, 0
		for at := 0; at <= size; at++ {
			armed := true
			proxy.Break(func(c faultproxy.Command) faultproxy.Fault {
				if c.Name != "evalsha" || !armed {
					return faultproxy.Fault{}
				}
				armed = false
				if kind == faultproxy.CutRequest {
					size = c.Size
				}
				return faultproxy.Fault{Kind: kind, At: at}
			})
			before := counted()
			d, err := storetest.Take(t.Context(), store, "p", charges)
			after := counted()
			switch {
			case err == nil:
				decided++
				require.Equal(t, before+1, after)
				require.Equal(t, 1_000_000_000-after, d.Outcomes()[0].Remaining)
			case kind == faultproxy.CutRequest && at < size:
				require.ErrorIs(t, err, core.ErrUnavailable)
				require.Equal(t, before, after, "half a request takes nothing")
			default:
				require.ErrorIs(t, err, core.ErrUnavailable)
				require.LessOrEqual(t, after-before, int64(1))
			}
		}
		t.Logf("cut at each of %d bytes; %d decisions came through whole", size, decided)
	}
}

// TestSwappedReplies exchanges the replies of pairs of calls, of two policies,
// and one of them has nothing left: neither gets the verdict of the other.
func TestSwappedReplies(t *testing.T) {
	direct := redistest.Real(t)
	proxy := faultproxy.Start(t, direct.Options().Addr)
	client := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: proxy.Addr()}))
	stores := []*Store{New(client, &Options{Timeout: 10 * time.Second}), New(client, &Options{Timeout: 10 * time.Second})}
	full, empty := charge("r", "k", 1_000, time.Hour), charge("r", "k", 1_000, time.Hour)
	full.Cost, empty.Cost = 1, 1000
	must.Get(storetest.Take(t.Context(), stores[0], "empty", []core.Charge{empty}))(t)
	empty.Cost, full.Cost = 1, 0
	for _, kind := range []faultproxy.Kind{faultproxy.SwapReply, faultproxy.DuplicateReply} {
		proxy.Break(func(c faultproxy.Command) faultproxy.Fault {
			if c.Name == "evalsha" && (kind == faultproxy.SwapReply || c.Number%3 == 0) {
				return faultproxy.Fault{Kind: kind}
			}
			return faultproxy.Fault{}
		})
		var mixed, decided atomic.Int64
		rounds := max(200, many()/20)
		for range rounds {
			var done sync.WaitGroup
			for i, c := range []core.Charge{full, empty} {
				done.Go(func() {
					d, err := storetest.Take(context.Background(), stores[i], []string{"full", "empty"}[i], []core.Charge{c})
					switch {
					case errors.Is(err, errWrongReply):
						mixed.Add(1)
					case assert.NoError(t, err):
						decided.Add(1)
						assert.Equal(t, i == 0, d.Allowed)
					}
				})
			}
			done.Wait()
		}
		t.Logf("%d calls: %d replies were those to others and seen as such, %d decided", 2*rounds, mixed.Load(), decided.Load())
		if kind == faultproxy.SwapReply {
			assert.EqualValues(t, 2*rounds, mixed.Load())
		} else {
			assert.Positive(t, decided.Load())
		}
		proxy.Break(nil)
		proxy.Cut()
	}
}

// TestFlushedAllTheTime flushes the scripts every 10 ms while callers decide.
func TestFlushedAllTheTime(t *testing.T) {
	client := redistest.Real(t) // miniredis has no run id: a flush is a restart to a store
	store := New(client, &Options{Timeout: time.Minute})
	charges, counted := counter(t, client)
	var asked atomic.Int64
	var done sync.WaitGroup
	stop := make(chan struct{})
	for range 16 {
		done.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				asked.Add(1)
				_, err := storetest.Take(context.Background(), store, "p", charges)
				assert.NoError(t, err)
			}
		})
	}
	flushes := max(30, many()/40)
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for range flushes {
		<-ticker.C
		require.NoError(t, client.ScriptFlush(t.Context()).Err())
	}
	close(stop)
	done.Wait()
	t.Logf("%d flushes, %d decisions, no error", flushes, asked.Load())
	assert.Equal(t, asked.Load(), counted())
}
