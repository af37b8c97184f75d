package limit

import (
	"context"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/internal/must"
)

// TestChangeOfEverything changes a policy among sets that have nothing in common, while
// requests of all kinds of callers wait, disconnect, hold leases and are settled. No
// request panics, and nothing is left of any.
func TestChangeOfEverything(t *testing.T) {
	pick := func(r *http.Request, name string) string { return r.Header.Get(name) }
	l := New(nil, &Options{
		Caller: Caller[*http.Request]{User: func(r *http.Request) string { return pick(r, "User") }, Plan: func(r *http.Request) string { return pick(r, "Plan") }, Class: func(r *http.Request) string { return pick(r, "Class") }},
		Override: func(_, _, key string) int64 {
			if key == "u1" {
				return rand.Int64N(5) - 1
			}
			return 0
		},
	})
	declared := Named("p", MustParse("a: 50/10ms global; b: 5/10ms per user").Rules()...).Overridable()
	h := mustPolicy(l, declared).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if rand.IntN(4) == 0 {
			time.Sleep(time.Millisecond)
		}
		w.WriteHeader(http.StatusTeapot)
	}))
	texts := []string{
		"b: 5/10ms per user refuse wait 20ms",
		"a: 50/10ms global refuse wait 20ms waiters 3; b: 5/10ms per user plan pro 9 reserve critical 2 refuse wait 5ms",
		"c: 2/30s global concurrency refuse wait 10ms; b: 5/10ms per user refuse wait 5ms; a: 50/10ms global refuse wait 1ms",
		"b: 5/10ms per user token-bucket plan pro 9 exempt user u2 refuse wait 5ms; d: 2/10ms per user queue burst 3",
		"b: 3/10ms per user; ban: 9/1s per user ban 5ms; v: 3/10ms global distinct user exempt class critical",
		"b: 5/10ms per user refuse mark; a: 9/10ms global refuse degrade; c: 3/30s per user concurrency",
		"b: 5/10ms per user shadow enforced 50; a: 50/10ms global refuse redirect /busy",
	}
	var stop atomic.Bool
	var done sync.WaitGroup
	for range 16 {
		done.Go(func() {
			for !stop.Load() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.IntN(30))*time.Millisecond)
				r := httptest.NewRequest("GET", "/", nil).WithContext(ctx)
				r.Header.Set("User", []string{"", "u1", "u2", "u3"}[rand.IntN(4)])
				r.Header.Set("Plan", []string{"", "pro", "other"}[rand.IntN(3)])
				r.Header.Set("Class", []string{"", "critical", "background"}[rand.IntN(3)])
				if rand.IntN(2) == 0 {
					time.AfterFunc(time.Duration(rand.IntN(5))*time.Millisecond, cancel)
				}
				h.ServeHTTP(httptest.NewRecorder(), r)
				cancel()
			}
		})
	}
	for range 200 {
		require.NoError(t, l.change(Named("p", MustParse(texts[rand.IntN(len(texts))]).Rules()...)))
		time.Sleep(5 * time.Millisecond)
	}
	stop.Store(true)
	done.Wait()
	assert.Zero(t, l.engine.Queues.Len())
	require.NoError(t, l.change(Named("p", MustParse("c: 2/30s global concurrency").Rules()...)))
	d := must.Get(mustPolicy(l, declared).Take(t.Context(), Request{Cost: 2}))(t)
	assert.True(t, d.Allowed, "no lease is left")
	d.Release()
}
