package proof

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/redisstore"
	"github.com/routelimit/limit/stores/storetest"
)

// jump is how far a clock jumps, in µs: two jumps end the shortest hold.
const jump = 600_000

// timesKey is the context key of where to append the times of all calls of Redis.
type timesKey struct{}

// heldIn is a call of a [core.Holder]: exactly one of its lists is not nil.
type heldIn struct {
	charges []core.Charge // to hold
	hold    core.Hold
	settle  []core.Settlement
	extend  []core.Extension
	silent  bool // whether nobody has seen what came of it
}

type heldOut struct {
	decision core.Decision
	hold     core.Hold
	settled  []core.Settled
	lived    []bool
	ended    int64 // when Redis ended a hold of the same ID before, by a call of its own
}

// heldUnits is what a store knows of a hold on a key.
type heldUnits struct {
	found       core.Found
	until       int64
	units, kept int64
	taken       core.Return
}

type heldKey struct {
	keyOfRule
	id core.HoldID
}

func (in *heldIn) call(ctx context.Context, store core.Holder) (out heldOut, err error) {
	switch {
	case in.settle != nil:
		out.settled, err = store.Settle(ctx, in.settle)
	case in.extend != nil:
		out.lived, err = store.Extend(ctx, in.extend)
	default:
		var times []int64
		ask := core.Ask{Charges: in.charges}
		out.hold = in.hold
		err = store.Hold(context.WithValue(ctx, timesKey{}, &times), &ask, &out.hold)
		out.decision = ask.Decision
		if len(times) > 2 { // it found that hold, ended it, and held
			out.ended = times[1]
		}
	}
	return out, err
}

func (in *heldIn) kind(out *heldOut) string {
	switch {
	case in.settle != nil && !in.silent:
		return fmt.Sprintf("settled, ends %v, found %v", in.settle[0].Ends, out.settled[0].Found)
	case in.settle != nil:
		return "ended by a hold"
	case in.extend != nil:
		return fmt.Sprintf("extended %v", out.lived[0])
	}
	return fmt.Sprintf("held, found %v", out.hold.Found)
}

// heldBy returns a hold that the store still remembers.
func (w *world) heldBy(c *core.Charge, id core.HoldID, now int64) (heldKey, heldUnits, bool) {
	key := heldKey{keyOfRule{c.Rule, c.Key}, id}
	u, ok := w.holds[key]
	return key, u, ok && (u.found == core.HoldLives || u.until > now)
}

// stepHeld applies a call to w, and reports whether the answer is the same.
func (w *world) stepHeld(in *heldIn, out *heldOut, now int64) bool {
	switch {
	case in.settle != nil:
		for i := range in.settle {
			if done := w.settle(&in.settle[i], now); !in.silent && done != out.settled[i] {
				return false
			}
		}
		return true
	case in.extend != nil:
		x := &in.extend[0]
		key, u, ok := w.heldBy(&x.Charge, x.Hold, now)
		lives := ok && u.found == core.HoldLives && u.until > now
		if lives {
			u.until = now + x.Life
			w.holds[key] = u
		}
		return lives == out.lived[0]
	}
	return w.hold(in, out, now)
}

func (w *world) hold(in *heldIn, out *heldOut, now int64) bool {
	charges, found := slices.Clone(in.charges), core.HoldUnknown
	var units [core.MaxCharges]int64
	refused := out.hold.Found == core.HoldRefused // another one of the ID ended at the same time
	for i := range charges {
		_, u, ok := w.heldBy(&charges[i], in.hold.ID, now)
		switch {
		case !ok || refused:
		case u.found == core.HoldLives && u.until <= now:
			w.settle(&core.Settlement{Return: core.Return{Charge: charges[i]}, Hold: in.hold.ID, Ends: true}, now)
		case u.found != core.HoldEnded:
			units[i], found = u.units, max(found, u.found)
		}
	}
	if !refused && found != out.hold.Found {
		return false
	}
	if found == core.HoldSettled {
		return true
	}
	if found == core.HoldLives {
		if units != out.hold.Units {
			return false
		}
		charges = costless(charges)
	}
	states := make([]core.State, len(charges))
	for i := range charges {
		states[i] = w.state(&charges[i])
	}
	want := core.Decide(now, charges, states)
	if got := &out.decision; got.At != now || want.Allowed != got.Allowed || !slices.Equal(want.Outcomes(), got.Outcomes()) {
		return false
	}
	for i, c := range charges {
		if found == core.HoldUnknown && !refused && want.Allowed && c.Cost > 0 {
			w.holds[heldKey{keyOfRule{c.Rule, c.Key}, in.hold.ID}] = heldUnits{found: core.HoldLives, until: now + in.hold.Life, units: c.Cost,
				kept: c.Cost * int64(in.hold.Kept>>i&1), taken: want.Return(i, c)}
		}
	}
	return !slices.ContainsFunc(out.hold.Over, func(of core.Settlement) bool {
		_, u, ok := w.heldBy(&of.Charge, of.Hold, now)
		return !ok || u.found != core.HoldLives || u.until > now
	})
}

func (w *world) settle(of *core.Settlement, now int64) (done core.Settled) {
	key, u, ok := w.heldBy(&of.Charge, of.Hold, now)
	if !ok || u.found != core.HoldSettled && of.Used == 0 && !of.Ends && of.At != 0 && of.At != u.taken.At {
		return done
	}
	if done.Found = u.found; u.found == core.HoldSettled {
		return done
	}
	cost, then, state := of.Used, core.HoldSettled, w.state(&of.Charge)
	if of.Ends {
		if u.found == core.HoldEnded || u.until > now {
			done.Found = core.HoldSettled
			return done
		}
		cost, then = u.kept, core.HoldEnded
	}
	switch {
	case cost < u.units:
		r := u.taken
		r.Charge, r.Cost = of.Charge, u.units-cost
		done.Given = state.Return(&r, now)
	case cost > u.units:
		c := of.Grow(cost-u.units, core.Look(now, of.Charge, state).Remaining)
		d := core.Decide(now, []core.Charge{c}, []core.State{state})
		done.Taken = c.Cost - d.Forgiven
		done.Forgiven = cost - u.units - done.Taken
	}
	if cost == 0 && !of.Ends {
		delete(w.holds, key)
		return done
	}
	u.found, u.units, u.until = then, cost, now+core.HoldMemory
	w.holds[key] = u
	return done
}

// The seen store holds, too.

func (s seen) Hold(ctx context.Context, ask *core.Ask, h *core.Hold) error {
	s.begin(ctx)
	return s.Store.Hold(ctx, ask, h)
}

func (s seen) Settle(ctx context.Context, list []core.Settlement) ([]core.Settled, error) {
	s.begin(ctx)
	return s.Store.Settle(ctx, list)
}

func (s seen) Extend(ctx context.Context, list []core.Extension) ([]bool, error) {
	s.begin(ctx)
	return s.Store.Extend(ctx, list)
}

// someHeldRules returns one to three rules of different algorithms that can be held.
func someHeldRules() (rules []core.Charge) {
	for _, c := range someRules() {
		if !c.Quota.Holds() {
			continue
		}
		c.Quota.Window = []int64{4000, 2 * jump, 3_600_000_000}[rand.IntN(3)]
		c.Quota.Missing = 0
		if c.Quota.Algorithm.Owes() {
			c.MaxDebt = rand.Int64N(4)
		}
		rules = append(rules, c)
	}
	if rules == nil {
		return someHeldRules()
	}
	return rules[:min(3, len(rules))]
}

// heldStep draws the next call of a client. Over are holds that it knows to have ended.
func (h *chaos) heldStep(over *[]core.Settlement, taken map[core.HoldID][]core.Return) step {
	charges := storetest.Of(h.policy, h.rules...)
	key := strconv.Itoa(rand.IntN(2))
	for i := range charges {
		charges[i].Cost = 1 + rand.Int64N(2)
		if i > 0 {
			charges[i].Key = key
		}
	}
	id := core.HoldIDOf(strconv.Itoa(rand.IntN(3)))
	switch n := rand.IntN(12); {
	case len(*over) > 0 && n < 6:
		list := *over
		*over = nil
		return step{holds: &heldIn{settle: list[:min(len(list), core.MaxCharges)]}}
	case n < 5:
		return step{holds: &heldIn{charges: charges, hold: core.Hold{ID: id, Life: core.MinHold, Kept: uint16(rand.IntN(8) & rand.IntN(8))}}}
	case n < 9:
		var list []core.Settlement
		ends, known := rand.IntN(5) == 0, taken[id]
		for i, c := range charges {
			s := core.Settlement{Return: core.Return{Charge: c}, Hold: id, Used: rand.Int64N(5), Ends: ends}
			if rand.IntN(4) == 0 {
				s.Used = 0 // which cancels it
			}
			if known != nil && rand.IntN(2) == 0 { // by the admission, and not by its id alone
				s.Return = known[i]
			}
			list = append(list, s)
		}
		return step{holds: &heldIn{settle: list}}
	case n < 11:
		return step{holds: &heldIn{extend: []core.Extension{{Charge: charges[rand.IntN(len(charges))], Hold: id, Life: core.MinHold}}}}
	case rand.IntN(3) == 0:
		return step{reset: &charges[0]}
	}
	return step{asks: [][]core.Charge{charges}}
}

// recordHeld runs all clients concurrently, and returns what they observed.
func (h *chaos) recordHeld(t *testing.T) (history []porcupine.Operation) {
	t.Helper()
	began := time.Now()
	var done sync.WaitGroup
	var mu sync.Mutex
	start := make(chan struct{})
	for client := range h.clients {
		done.Go(func() {
			var over []core.Settlement
			taken := make(map[core.HoldID][]core.Return)
			<-start
			for range h.calls {
				in := h.heldStep(&over, taken)
				op := porcupine.Operation{ClientId: client, Input: in, Call: time.Since(began).Nanoseconds()}
				out, err := in.call(h.stores[client%len(h.stores)])
				op.Output, op.Return = out, time.Since(began).Nanoseconds()
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				history = append(history, op)
				if out.ended > 0 {
					ends := &heldIn{silent: true}
					for _, c := range in.holds.charges {
						ends.settle = append(ends.settle, core.Settlement{Return: core.Return{Charge: c}, Hold: in.holds.hold.ID, Ends: true})
					}
					op.Input, op.Output = step{holds: ends}, stepped{at: out.ended}
					history = append(history, op)
				}
				mu.Unlock()
				over = append(over, out.hold.Over...)
				if d := &out.decision; d.Allowed && out.hold.Found == core.HoldUnknown {
					var list []core.Return
					for i, c := range in.holds.charges {
						list = append(list, d.Return(i, c))
					}
					taken[in.holds.hold.ID] = list
				}
			}
		})
	}
	close(start)
	done.Wait()
	return history
}

// TestLinearizableHolds has clients hold under a few ids, settle, cancel, extend and repeat,
// while the clock jumps, so that holds end between calls.
func TestLinearizableHolds(t *testing.T) {
	run := func(t *testing.T, n int, next func() *chaos) {
		kinds := make(map[string]int)
		for i := range n {
			h := next()
			h.policy, h.rules = fmt.Sprint("history", i), someHeldRules()
			history := h.recordHeld(t)
			for _, op := range history {
				in := op.Input.(step)
				kinds[in.kind(op.Output.(stepped))]++
			}
			if result := linearizable(history); result != porcupine.Ok {
				for _, op := range history {
					in := op.Input.(step)
					t.Logf("client %d, %d to %d: %s", op.ClientId, op.Call, op.Return, in.tell(op.Output.(stepped)))
				}
				t.Fatalf("history %d of %d: %s", i, n, result)
			}
		}
		t.Logf("%d histories, all linearizable, none unknown; calls %v", n, kinds)
	}
	t.Run("memory", func(t *testing.T) {
		run(t, histories(500), func() *chaos {
			store := newSeen(true)
			store.clock.jumps = true
			return &chaos{stores: []core.Store{store}, clients: 4, calls: 6}
		})
	})
	t.Run("redis", func(t *testing.T) {
		client := redistest.Real(t)
		var stores []core.Store
		for range 2 {
			c := redistest.Closing(t, redis.NewClient(client.Options()))
			c.AddHook(telltime{jumps: true})
			stores = append(stores, redisstore.New(c, &redisstore.Options{Timeout: time.Minute}))
		}
		run(t, histories(45), func() *chaos {
			require.NoError(t, client.Del(t.Context(), "jumped").Err()) // no call comes after its deadline
			return &chaos{stores: stores, clients: 8, calls: 3}
		})
	})
}

// TestLinearizableHoldsCanFail checks a store that settles what it has settled again.
func TestLinearizableHoldsCanFail(t *testing.T) {
	n, caught := histories(150), 0
	for i := range n {
		store := newSeen(true)
		store.clock.jumps = true
		h := &chaos{stores: []core.Store{settlesAgain{store}}, clients: 4, calls: 6, policy: fmt.Sprint("history", i), rules: someHeldRules()}
		if linearizable(h.recordHeld(t)) == porcupine.Illegal {
			caught++
		}
	}
	t.Logf("caught in %d of %d histories", caught, n)
	require.Positive(t, caught)
}

// settlesAgain remembers no settlement.
type settlesAgain struct{ seen }

func (s settlesAgain) Settle(ctx context.Context, list []core.Settlement) ([]core.Settled, error) {
	done, err := s.seen.Settle(ctx, list)
	for i := range done {
		if done[i].Found == core.HoldSettled {
			done[i] = core.Settled{Found: core.HoldLives}
		}
	}
	return done, err
}
