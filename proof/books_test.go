package proof

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/faultproxy"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/operate"
	"github.com/routelimit/limit/stores/redisstore"
)

// TestBooksBehindGuards has two processes reserve and settle as users do, over connections
// that lose every fifth reply of a script, so that many decisions are made without the store.
// A call without an answer may count twice, but nothing that was used is ever missing, and no
// hold outlives its request. LIMIT_BOOKS says how many requests there are. TestBooks of
// redisstore is exact, since it repeats each call until it has an answer.
func TestBooksBehindGuards(t *testing.T) {
	const most, cost, users = 1_000_000_000, 100, 3
	n, err := strconv.Atoi(os.Getenv("LIMIT_BOOKS"))
	if err != nil {
		n = 300
	}
	direct := redistest.Real(t)
	proxy := faultproxy.Start(t, direct.Options().Addr)
	rules := limit.Named("books",
		limit.Rule{Name: "window", Key: limit.ByUser, Limit: most, Window: 366 * 24 * time.Hour, Algorithm: limit.FixedWindow{}},
		limit.Rule{Name: "cells", Key: limit.ByUser, Limit: most, Window: 366 * 24 * time.Hour, Algorithm: limit.SlidingCells{Cells: 10}})
	open := func(addr string) (*limit.Limiter, *limit.Policy) {
		client := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, ContextTimeoutEnabled: true}))
		l := limit.New(redisstore.New(client, nil), &limit.Options{Instances: 2, Log: slog.New(slog.DiscardHandler)})
		p := must.Get(l.Policy(rules))(t)
		return l, p
	}
	var processes [2]*limit.Limiter
	var policies [2]*limit.Policy
	for i := range processes {
		processes[i], policies[i] = open(proxy.Addr())
	}
	ctx, random := context.Background(), rand.New(rand.NewPCG(1, 2))
	request := func(p *limit.Policy, user string, cost, used int64) (settled bool) {
		both := func(n int64) map[string]int64 { return map[string]int64{"window": n, "cells": n} }
		d := must.Get(p.Take(ctx, limit.Request{Keys: map[string]string{"user": user}, Costs: both(cost), Hold: time.Second}))(t)
		require.True(t, d.Allowed)
		err := d.SettleCosts(ctx, both(used))
		if err != nil {
			require.ErrorIs(t, err, limit.ErrUndecided)
		}
		return err == nil
	}

	lost := 0
	proxy.Break(func(c faultproxy.Command) faultproxy.Fault {
		if (c.Name == "evalsha" || c.Name == "eval") && c.Number%5 == 0 {
			lost++
			return faultproxy.Fault{Kind: faultproxy.LoseReply}
		}
		return faultproxy.Fault{}
	})
	var used, missing [users]int64 // missing may be: settlements upwards that failed, and said so
	for range n {
		user, units := random.IntN(users), random.Int64N(3*cost/2)
		used[user] += units
		if !request(policies[random.IntN(2)], fmt.Sprint(user), cost, units) {
			missing[user] += max(0, units-cost)
		}
	}
	proxy.Break(nil)

	reader, _ := open(direct.Options().Addr)
	look := func(user int, rule string) (charged, held int64) {
		d := must.Get(operate.Peek(ctx, reader, "books", rule, fmt.Sprint(user), ""))(t)
		account := must.Get(operate.Account(ctx, reader, "books", rule, fmt.Sprint(user), ""))(t)
		return most - d.Remaining, account.Holds + account.Ended
	}
	redistest.Await(t, time.Minute, "debts are paid, and holds have ended", func() bool {
		left := int64(0)
		for user := range users {
			for _, p := range policies {
				request(p, fmt.Sprint(user), 1, 0) // which ends the holds of others
			}
			for _, rule := range []string{"window", "cells"} {
				_, held := look(user, rule)
				left += held
			}
		}
		for _, l := range processes {
			left += operate.ReadStats(l).Condition.Owed
		}
		return left == 0
	})
	total, all := int64(0), int64(0)
	for user := range users {
		for _, rule := range []string{"window", "cells"} {
			charged, _ := look(user, rule)
			assert.GreaterOrEqual(t, charged, used[user]-missing[user], "%s of %d", rule, user)
			total, all = total+charged, all+used[user]
		}
	}
	assert.LessOrEqual(t, total-all, int64(2*cost*lost), "each lost reply counts twice at worst")
	t.Logf("%d requests, %d lost replies: %d units used, %d charged, %.1f %% more", n, lost, all, total, 100*float64(total-all)/float64(all))
}
