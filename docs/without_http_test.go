package docs_test

import (
	"context"
	"fmt"
	"log"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
)

func Example_withoutHTTP() {
	ctx := context.Background()

	limiter := limit.New(nil, nil)
	mails, err := limiter.Policy(limit.Named("mails",
		limit.PerUser(time.Hour, 2),
		limit.Global(time.Hour, 100),
	))
	if err != nil {
		log.Fatal(err)
	}
	alice := map[string]string{"user": "alice"}
	for range 3 {
		d, err := mails.Take(ctx, limit.Request{Keys: alice})
		if err != nil {
			log.Fatal(err) // not decided: see ErrUndecided
		}
		fmt.Println(d.Allowed, d.RetryAfter.Round(time.Minute))
	}
	// Output:
	// true 0s
	// true 0s
	// false 1h0m0s
}

func Example_peek() {
	ctx := context.Background()
	mails, err := limit.New(nil, nil).Policy(limit.Named("mails",
		limit.PerUser(time.Hour, 2),
		limit.Global(time.Hour, 100),
	))
	if err != nil {
		log.Fatal(err)
	}
	alice := map[string]string{"user": "alice"}
	if _, err := mails.Wait(ctx, limit.Request{Keys: alice, Cost: 2}); err != nil {
		log.Fatal(err)
	}

	d, err := mails.Peek(ctx, limit.Request{Keys: alice})
	if err != nil {
		log.Fatal(err)
	}
	for rule := range d.Rules() {
		fmt.Println(rule.Name, rule.Remaining, rule.ResetAfter.Round(time.Minute))
	}

	fmt.Println(d.Allowed)
	// Output:
	// per-user-1h 0 1h0m0s
	// global-1h 98 1h0m0s
	// false
}

// TestWithoutHTTP checks what the page says of deadlines, of a Wait that is
// settled, and of a Reset without a rule to reset.
func TestWithoutHTTP(t *testing.T) {
	limiter := limit.New(nil, nil)
	policy, err := limiter.Policy(limit.Named("mails", limit.PerUser(time.Hour, 2)))
	require.NoError(t, err)
	alice := limit.Request{Keys: map[string]string{"user": "alice"}}
	_, err = policy.Take(t.Context(), alice)
	require.NoError(t, err)
	d, err := policy.Wait(t.Context(), limit.Request{Keys: alice.Keys, Settle: true})
	require.NoError(t, err)
	assert.EqualValues(t, 1, d.Taken)

	short, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = policy.Wait(short, alice)
	var refused *limit.RefusedError
	require.ErrorAs(t, err, &refused)
	require.NoError(t, short.Err())

	require.NoError(t, d.Settle(t.Context(), 0))
	left, err := policy.Peek(t.Context(), alice)
	require.NoError(t, err)
	assert.EqualValues(t, 1, slices.Collect(left.Rules())[0].Remaining)

	all, err := limiter.Policy(limit.Named("all", limit.Global(time.Hour, 2)))
	require.NoError(t, err)
	assert.Error(t, all.Reset(t.Context(), nil))
}

func Example_reserve() {
	ctx := context.Background()
	limiter := limit.New(nil, nil)
	alice := map[string]string{"user": "alice"}
	complete := func() int64 { return 400 }

	tokens, err := limiter.Policy(limit.Named("tokens", limit.PerUser(time.Minute, 10_000)))
	if err != nil {
		log.Fatal(err)
	}
	d, err := tokens.Take(ctx, limit.Request{Keys: alice, Cost: 4_000, Settle: true}) // the most that it may cost
	if err != nil || !d.Allowed {
		return
	}
	used := complete()
	if err := d.Settle(ctx, used); err != nil {
		log.Println(err)
	}

	left, _ := tokens.Peek(ctx, limit.Request{Keys: alice})
	for rule := range left.Rules() {
		fmt.Println(rule.Remaining)
	}

	model, err := limiter.Policy(limit.Named("model",
		limit.Rule{Name: "requests", Key: limit.ByUser, Limit: 60, Window: time.Minute},
		limit.Rule{Name: "tokens", Key: limit.ByUser, Limit: 10_000, Window: time.Minute}))
	if err != nil {
		log.Fatal(err)
	}
	d, err = model.Take(ctx, limit.Request{Keys: alice, Costs: map[string]int64{"tokens": 4_000}, Settle: true})
	if err != nil || !d.Allowed {
		return
	}
	if err := d.SettleCosts(ctx, map[string]int64{"tokens": complete()}); err != nil {
		log.Println(err)
	}

	left, _ = model.Peek(ctx, limit.Request{Keys: alice})
	for rule := range left.Rules() {
		fmt.Println(rule.Name, rule.Remaining)
	}
	// Output:
	// 9600
	// requests 59
	// tokens 9600
}
