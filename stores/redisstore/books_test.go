package redisstore

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/faultproxy"
	"github.com/routelimit/limit/internal/race"
	"github.com/routelimit/limit/internal/redistest"
)

// TestBooks has two processes reserve and settle over connections that lose every fifth reply
// of a script. A request is repeated until it has an answer, by either process; some are
// settled by both, some after their holds have ended, and some never, as if the process had
// died. Then each rule has charged what the requests really cost, to the unit. LIMIT_BOOKS
// says how many requests there are.
func TestBooks(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv("LIMIT_BOOKS"))
	if err != nil {
		if n = 3_000; race.Enabled || testing.Short() {
			n = 1_000
		}
	}
	b := &books{t: t, random: rand.New(rand.NewPCG(1, 2)), now: start, owed: make(map[string]int64)}
	direct := redistest.Real(t)
	proxy := faultproxy.Start(t, direct.Options().Addr)
	proxy.Break(func(c faultproxy.Command) faultproxy.Fault {
		if (c.Name == "evalsha" || c.Name == "eval") && c.Number%5 == 0 {
			b.lost++
			return faultproxy.Fault{Kind: faultproxy.LoseReply}
		}
		return faultproxy.Fault{}
	})
	for range 2 {
		client := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: proxy.Addr(), MaxRetries: -1}))
		b.stores = append(b.stores, at(client, &b.now))
	}
	for i := range n {
		b.now += b.random.Int64N(2_000)
		b.request(fmt.Sprint("request ", i))
	}
	b.now += core.MaxHold
	b.sweep()
	for key := range 5 {
		for _, c := range charges(key) {
			c.Cost = 0
			d := b.take(c)
			require.Equal(t, b.owed[c.Rule+c.Key], c.Quota.Capacity()-d.Outcomes()[0].Remaining, "%s of %s", c.Rule, c.Key)
		}
	}
	t.Logf("%d requests, %d lost replies, %d died, %d settled late, %d units: none is missing", n, b.lost, b.died, b.late, b.owed["windowk0"])
	require.Greater(t, b.lost, n/5)
	require.Positive(t, b.late)
}

type books struct {
	t      *testing.T
	random *rand.Rand
	stores []*Store
	now    int64
	owed   map[string]int64 // what each key has really used

	lost, died, late int
}

// charges returns what a request of a key may cost at most. Nothing leaves a window.
func charges(key int) []core.Charge {
	const most, window = 1_000_000_000, 366 * 24 * 3600 * 1_000_000
	c := core.Charge{Policy: "p", Rule: "window", Key: fmt.Sprint("k", key), Cost: 100, Quota: core.Quota{Algorithm: core.FixedWindow, Limit: most, Window: window}}
	list := []core.Charge{c, c, c}
	list[1].Rule, list[1].Quota = "cells", core.Quota{Algorithm: core.SlidingCells, Limit: most, Window: window, Cells: 10}
	list[2].Rule, list[2].Key, list[2].Cost, list[2].MaxDebt = "all", "", 30, 1000
	return list
}

// store returns the store of one of the processes.
func (b *books) store() *Store { return b.stores[b.random.IntN(len(b.stores))] }

// until repeats a call until it has an answer.
func (b *books) until(call func() error) {
	for try := 0; ; try++ {
		err := call()
		if err == nil {
			return
		}
		require.ErrorIs(b.t, err, core.ErrUnavailable)
		require.Less(b.t, try, 100)
	}
}

func (b *books) take(c core.Charge) (d core.Decision) {
	b.until(func() (err error) {
		d, err = core.Take(b.t.Context(), b.store(), []core.Charge{c})
		return err
	})
	return d
}

func (b *books) request(id string) {
	list := charges(b.random.IntN(5))
	ask := core.Ask{Charges: list}
	h := core.Hold{ID: core.HoldIDOf(id), Life: core.MinHold}
	b.until(func() error { return b.store().Hold(b.t.Context(), &ask, &h) })
	require.True(b.t, ask.Decision.Allowed)
	b.end(h.Over)
	if b.random.IntN(10) == 0 {
		b.died++
		return
	}
	if b.random.IntN(10) == 0 {
		b.late++
		b.now += core.MinHold + b.random.Int64N(time.Minute.Microseconds())
	}
	var settled []core.Settlement
	for i := range list {
		used := b.random.Int64N(3 * list[i].Cost / 2)
		b.owed[list[i].Rule+list[i].Key] += used
		of := core.Settlement{Return: core.Return{Charge: list[i]}, Hold: h.ID, Used: used}
		if b.random.IntN(2) == 0 {
			of.Return = ask.Decision.Return(i, list[i])
		}
		settled = append(settled, of)
	}
	for range 1 + b.random.IntN(2) { // the second changes nothing
		b.until(func() error {
			_, err := b.store().Settle(b.t.Context(), settled)
			return err
		})
	}
}

// end ends holds that are over.
func (b *books) end(over []core.Settlement) {
	for i := range over {
		b.until(func() error {
			_, err := b.store().Settle(b.t.Context(), over[i:i+1])
			return err
		})
	}
}

// sweep ends all holds that are over.
func (b *books) sweep() {
	for key := range 5 {
		for {
			ask := core.Ask{Charges: charges(key)}
			for i := range ask.Charges {
				ask.Charges[i].Cost = 0
			}
			h := core.Hold{ID: core.HoldIDOf("sweep"), Life: core.MinHold}
			b.until(func() error { return b.store().Hold(b.t.Context(), &ask, &h) })
			if len(h.Over) == 0 {
				break
			}
			b.end(h.Over)
		}
	}
}
