package limit_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/memstore"
	"github.com/routelimit/limit/stores/redisstore"
)

// streams limits tokens, and streams in flight.
var streams = limit.Named("streams",
	limit.Rule{Name: "tokens", Key: limit.ByUser, Limit: 1000, Window: time.Hour, Algorithm: limit.FixedWindow{}},
	limit.Rule{Name: "running", Key: limit.ByUser, Limit: 1, Algorithm: limit.Concurrency{}})

// stream serves a request that holds tokens and a slot, and is settled at less.
func stream(t *testing.T, p *limit.Policy, within func(limit.Decision)) int {
	t.Helper()
	w, r := httptest.NewRecorder(), held("", 60)
	r.Costs = map[string]int64{"running": 1}
	require.NoError(t, p.Serve(w, httptest.NewRequest(http.MethodPost, "/", nil), r, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		d := limit.DecisionFrom(r.Context())
		require.NoError(t, d.Use(r.Context(), map[string]int64{"tokens": 7}))
		if within != nil {
			within(d)
		}
	})))
	return w.Code
}

// calls counts the scripts that a client runs on keys of streams. A store also checks its server, at
// a time of its own.
type calls struct{ n atomic.Int64 }

func (c *calls) DialHook(next redis.DialHook) redis.DialHook { return next }
func (c *calls) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" && strings.Contains(fmt.Sprint(cmd.Args()...), "{streams}") {
			c.n.Add(1)
		}
		return next(ctx, cmd)
	}
}
func (c *calls) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestStreamIsTwoCalls has Redis take and hold what a stream needs in one call, and settle and
// release it in another.
func TestStreamIsTwoCalls(t *testing.T) {
	counted := new(calls)
	one, cluster := redistest.Real(t), redistest.Cluster(t)
	one.AddHook(counted)
	cluster.AddHook(counted)
	for name, client := range map[string]redis.UniversalClient{"one server": one, "cluster": cluster} {
		t.Run(name, func(t *testing.T) {
			p := must.Get(limit.New(redisstore.New(client, &redisstore.Options{Timeout: time.Minute}), nil).Policy(streams))(t)
			for range 2 { // the first loads the scripts, and the slot is free again
				require.Equal(t, 200, stream(t, p, nil))
			}
			for range 5 {
				counted.n.Store(0)
				require.Equal(t, 200, stream(t, p, nil))
				assert.EqualValues(t, 2, counted.n.Load())
			}
			assert.EqualValues(t, 1000-7*7, leftOf(t, p))
			require.Equal(t, 200, stream(t, p, func(d limit.Decision) { d.Release() }), "released before")
			require.Equal(t, 200, stream(t, p, func(d limit.Decision) { require.NoError(t, d.Settle(t.Context(), 5)) }), "settled before")
			require.Equal(t, 200, stream(t, p, nil))
			assert.EqualValues(t, 1000-7*9-5, leftOf(t, p))
		})
	}
}

// An unsettling store fails settlements with an error, maybe once they are done.
type unsettling struct {
	*memstore.Store
	err      error
	loses    bool // only the reply
	left     int  // so many times
	released int  // calls
}

func (f *unsettling) Guarded() bool { return true }

func (f *unsettling) Settle(ctx context.Context, list []core.Settlement) ([]core.Settled, error) {
	if f.left == 0 {
		return f.Store.Settle(ctx, list)
	}
	if f.left--; f.loses {
		_, _ = f.Store.Settle(ctx, list)
	}
	return nil, f.err
}

func (f *unsettling) Release(ctx context.Context, charges []core.Charge) error {
	f.released++
	return f.Store.Release(ctx, charges)
}

// TestStreamEndsDespiteErrors has the settlement of a stream fail: its slot is free at once, and
// its tokens are settled once, by a repeat.
func TestStreamEndsDespiteErrors(t *testing.T) {
	for name, test := range map[string]struct {
		err      error
		loses    bool
		left     int
		released int
	}{
		"lost on the way":    {core.ErrUnavailable, false, 1, 0},
		"the reply is lost":  {core.ErrUnavailable, true, 1, 0},
		"away":               {core.ErrUnavailable, false, 3, 1},
		"replies are lost":   {core.ErrUnavailable, true, 3, 1},
		"the store is wrong": {core.ErrCharges, false, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &unsettling{Store: memstore.New(nil), err: test.err, loses: test.loses}
				p := must.Get(limit.New(store, nil).Policy(streams))(t)
				require.Equal(t, 200, stream(t, p, func(limit.Decision) { store.left = test.left }))
				assert.Equal(t, test.released, store.released)
				other := must.Get(p.Take(t.Context(), limit.Request{Keys: map[string]string{"user": "u"}, Costs: map[string]int64{"tokens": 0}}))(t)
				assert.True(t, other.Allowed, "the slot is free")
				other.Release()
				time.Sleep(5 * time.Second) // it is settled in the background
				assert.EqualValues(t, 993, leftOf(t, p))
			})
		})
	}
}

// TestStreamWithoutHold has a stream end whose hold is gone: the call that finds nothing to settle
// releases it.
func TestStreamWithoutHold(t *testing.T) {
	store := &unsettling{Store: memstore.New(nil)}
	p := must.Get(limit.New(store, nil).Policy(streams))(t)
	require.Equal(t, 200, stream(t, p, func(limit.Decision) {
		require.NoError(t, store.Store.Reset(t.Context(), []core.Charge{{Policy: "streams", Rule: "tokens", Key: "u"}}))
	}))
	assert.Zero(t, store.released, "in the same call")
	require.Equal(t, 200, stream(t, p, nil))
}
