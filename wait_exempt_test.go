package limit_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/rules"
)

// TestWaitsOfExempt has callers wait for one quota of whom other rules exempt some, or watch
// some: each is decided by its own rules.
func TestWaitsOfExempt(t *testing.T) {
	for _, first := range []limit.Rule{
		{Name: "first", Key: limit.ByUser, Limit: 500, Window: time.Hour, Exempt: []string{"user vip"}},
		{Name: "first", Key: limit.ByUser, Limit: 500, Window: time.Hour, Shadow: &rules.Shadow{Enforced: 50}},
	} {
		for _, vipFirst := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				limiter := limit.New(nil, &limit.Options{Caller: limit.Caller[*http.Request]{User: header("User")}})
				list := limit.Named("api", first, limit.Rule{Name: "all", Key: limit.Everyone, Limit: 1, Window: time.Second,
					OnRefusal: limit.Refusal{Wait: time.Hour}})
				policy := must.Get(limiter.Policy(list))(t)
				handler := policy.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
				var all sync.WaitGroup
				for i := range 40 {
					user := fmt.Sprint("user-", i)
					if (i%2 == 0) == vipFirst {
						user = "vip"
					}
					all.Go(func() {
						w := send(handler, "GET", "/", "User", user)
						assert.Equal(t, http.StatusOK, w.Code)
					})
					all.Go(func() {
						ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
						defer cancel()
						_, err := policy.Wait(ctx, limit.Request{Keys: map[string]string{"user": user}})
						assert.NoError(t, err)
					})
					synctest.Wait()
				}
				all.Wait()
			})
		}
	}
}

// TestExemptFromAll decides requests outside HTTP of a caller whom all rules exempt. They are
// admitted, and there is nothing to settle.
func TestExemptFromAll(t *testing.T) {
	policy := mustPolicy(limit.New(nil, nil), limit.Named("api",
		limit.Rule{Name: "mine", Key: limit.ByUser, Limit: 1, Window: time.Hour, Exempt: []string{"user vip"}},
		limit.Rule{Name: "slots", Key: limit.ByUser, Limit: 1, Algorithm: limit.Concurrency{}, Exempt: []string{"user vip"}}))
	vip := map[string]string{"user": "vip"}
	for range 3 {
		for _, r := range []limit.Request{{}, {Settle: true}, {Hold: time.Minute, ID: "x"}, {UpTo: true, Cost: 3}} {
			r.Keys = vip
			d := must.Get(policy.Take(t.Context(), r))(t)
			assert.Equal(t, []any{true, core.ModeExempt, max(1, r.Cost)}, []any{d.Allowed, d.Mode, d.Taken})
			assert.WithinDuration(t, time.Now(), d.At, time.Minute)
			for rule := range d.Rules() {
				assert.True(t, rule.Exempt)
			}
			if r.Settle || r.Hold > 0 {
				assert.NoError(t, d.Use(t.Context(), map[string]int64{"mine": 5}))
				assert.NoError(t, d.SettleCosts(t.Context(), map[string]int64{"mine": 5}))
			}
			d.Release()
		}
		d, err := policy.Wait(t.Context(), limit.Request{Keys: vip, Cost: 10}) // more than there ever is for others
		require.NoError(t, err)
		assert.True(t, d.Allowed)
		d = must.Get(policy.Peek(t.Context(), limit.Request{Keys: vip}))(t)
		assert.True(t, d.Allowed)
	}
}
