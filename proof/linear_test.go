package proof

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/memstore"
	"github.com/routelimit/limit/stores/redisstore"
	"github.com/routelimit/limit/stores/storetest"
)

// The model of linearizability has two rules within one window that does not end, so
// that only the units taken matter. Rule 0 counts per key, rule 1 counts all.
const keysInModel = 2

var limits = [2]int64{5, 7}

type spending [keysInModel + 1]int64 // of each key, and of all

type call struct {
	key  int
	cost int64
}

type answer struct {
	allowed   bool
	remaining [2]int64
}

var model = porcupine.Model{
	Init: func() any { return spending{} },
	Step: func(state, input, output any) (bool, any) {
		s, in, out := state.(spending), input.(call), output.(answer)
		allowed := s[in.key]+in.cost <= limits[0] && s[keysInModel]+in.cost <= limits[1]
		if allowed {
			s[in.key] += in.cost
			s[keysInModel] += in.cost
		}
		want := answer{allowed, [2]int64{limits[0] - s[in.key], limits[1] - s[keysInModel]}}
		return out == want, s
	},
}

// perturbed lets other goroutines run around every call.
func perturbed(store core.Store, policy string, in call) (answer, error) {
	if rand.IntN(2) == 0 {
		runtime.Gosched()
	}
	d, err := core.Take(context.Background(), store, storetest.Of(policy, []core.Charge{
		{Rule: "key", Key: strconv.Itoa(in.key), Cost: in.cost, Quota: core.Quota{Limit: limits[0], Window: core.MaxWindow}},
		{Rule: "all", Cost: in.cost, Quota: core.Quota{Limit: limits[1], Window: core.MaxWindow}},
	}...))
	if err != nil {
		return answer{}, err
	}
	o := d.Outcomes()
	return answer{d.Allowed, [2]int64{o[0].Remaining, o[1].Remaining}}, nil
}

func TestLinearizable(t *testing.T) {
	stores := []struct {
		name      string
		histories int
		store     func(t *testing.T) core.Store
	}{
		{"memory", 2000, func(*testing.T) core.Store { return memstore.New(nil) }},
		{"redis", 300, func(t *testing.T) core.Store {
			return redisstore.New(redistest.Client(t), &redisstore.Options{Timeout: time.Minute})
		}},
	}
	for _, s := range stores {
		t.Run(s.name, func(t *testing.T) {
			store := s.store(t)
			refused := 0
			for h := range s.histories {
				history := record(t, store, fmt.Sprint("history", h))
				for _, op := range history {
					if !op.Output.(answer).allowed {
						refused++
					}
				}
				require.True(t, porcupine.CheckOperations(model, history), "history %d: %v", h, history)
			}
			t.Logf("%d histories of 24 decisions, %d of them refused: all linearizable", s.histories, refused)
		})
	}
}

// TestLinearizableCanFail checks a store that reads first and takes later, as limiters
// with two round trips do.
func TestLinearizableCanFail(t *testing.T) {
	for h := range 10_000 {
		if !porcupine.CheckOperations(model, record(t, &checkThenAct{memstore.New(nil)}, "p")) {
			t.Logf("caught in history %d", h+1)
			return
		}
	}
	t.Fatal("a store that checks, then acts, was taken for atomic")
}

type checkThenAct struct{ core.Store }

func (s *checkThenAct) Take(ctx context.Context, asks []core.Ask) error {
	charges := asks[0].Charges
	d, err := core.Take(ctx, s.Store, costless(charges))
	for i, o := range d.Outcomes() {
		d.Allowed = d.Allowed && o.Remaining >= charges[i].Cost
	}
	runtime.Gosched()
	if d.Allowed { // by what it read before
		s.Store.Take(ctx, asks)
		for i := range d.Outcomes() {
			d.Outcomes()[i].Remaining -= charges[i].Cost
		}
	}
	asks[0].Decision = d
	return err
}

// costless returns copies of charges that only look.
func costless(charges []core.Charge) []core.Charge {
	look := slices.Clone(charges)
	for i := range look {
		look[i].Cost = 0
	}
	return look
}

// record runs four clients at once, each with six decisions.
func record(t *testing.T, store core.Store, policy string) []porcupine.Operation {
	t.Helper()
	const clients, calls = 4, 6
	history := make([]porcupine.Operation, clients*calls)
	began := time.Now()
	var done sync.WaitGroup
	start := make(chan struct{})
	for client := range clients {
		done.Go(func() {
			<-start
			for i := range calls {
				in := call{key: rand.IntN(keysInModel), cost: rand.Int64N(3)}
				op := porcupine.Operation{ClientId: client, Input: in, Call: time.Since(began).Nanoseconds()}
				out, err := perturbed(store, policy, in)
				if err != nil {
					t.Error(err)
				}
				op.Output, op.Return = out, time.Since(began).Nanoseconds()
				history[client*calls+i] = op
			}
		})
	}
	close(start)
	done.Wait()
	return history
}
