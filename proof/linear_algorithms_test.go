package proof

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/race"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/memstore"
	"github.com/routelimit/limit/stores/redisstore"
	"github.com/routelimit/limit/stores/storetest"
)

// histories is the number of histories for each store: LIMIT_HISTORIES, or as many as
// take a few seconds.
func histories(usual int) int {
	if n, err := strconv.Atoi(os.Getenv("LIMIT_HISTORIES")); err == nil {
		return n
	}
	if race.Enabled {
		return usual / 15 // the search for an order is of one goroutine
	}
	return usual
}

// noteKey is the context key of where to note the time of a call, if its answer does
// not have it.
type noteKey struct{}

// A seenClock is the clock of a memory store. It records reads by caller, and lets other
// goroutines run between the read and the locks.
type seenClock struct {
	mu      sync.Mutex // held by the caller from before the call until it has read
	now     int64
	note    *int64
	perturb bool
	jumps   bool // so that holds end
}

func (c *seenClock) read() int64 {
	c.now += rand.Int64N(400)
	if c.jumps && rand.IntN(4) == 0 {
		c.now += jump
	}
	now := c.now
	if c.note != nil {
		*c.note = now
	}
	c.mu.Unlock()
	if c.perturb {
		for rand.IntN(3) > 0 {
			runtime.Gosched()
		}
	}
	return now
}

// seen is a memory store that a seenClock watches. Each call reads it once.
type seen struct {
	*memstore.Store
	clock *seenClock
}

func newSeen(perturb bool) seen {
	clock := &seenClock{now: 1_800_000_000_000_000, perturb: perturb}
	return seen{memstore.New(&memstore.Options{Now: clock.read}), clock}
}

func (s seen) begin(ctx context.Context) {
	s.clock.mu.Lock()
	s.clock.note, _ = ctx.Value(noteKey{}).(*int64)
}

func (s seen) Take(ctx context.Context, asks []core.Ask) error {
	var bound func(context.Context, *core.Ask) error
	if len(asks) == 1 && rand.IntN(2) == 0 { // as a plan decides
		bound = s.Bind(asks[0].Charges)
	}
	s.begin(ctx)
	if bound != nil {
		return bound(ctx, &asks[0])
	}
	return s.Store.Take(ctx, asks)
}

func (s seen) Renew(ctx context.Context, charges []core.Charge) ([]bool, error) {
	s.begin(ctx)
	return s.Store.Renew(ctx, charges)
}

func (s seen) Release(ctx context.Context, charges []core.Charge) error {
	s.begin(ctx)
	return s.Store.Release(ctx, charges)
}

func (s seen) Return(ctx context.Context, returns []core.Return) ([]core.Returned, error) {
	s.begin(ctx)
	return s.Store.Return(ctx, returns)
}

func (s seen) Reset(ctx context.Context, charges []core.Charge) error {
	s.begin(ctx)
	return s.Store.Reset(ctx, charges)
}

// telltime makes scripts add the time to answers that do not have it. If it jumps, that is later
// than the time of Redis, so that holds end.
type telltime struct{ jumps bool }

func (telltime) DialHook(next redis.DialHook) redis.DialHook { return next }

func (telltime) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (tell telltime) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	now := "t[1]*1000000 + t[2]"
	if tell.jumps {
		now += fmt.Sprintf(" + redis.call('INCRBY', 'jumped', t[2] %% 4 == 0 and %d or 0)", jump)
	}
	return func(ctx context.Context, cmd redis.Cmder) error {
		note, ok := ctx.Value(noteKey{}).(*int64)
		args := cmd.Args()
		switch {
		case !ok && !tell.jumps:
		case cmd.Name() == "evalsha":
			args[1] = strings.Repeat("0", 40) // so that the script is sent as text
		case cmd.Name() == "eval":
			args[1] = "local t = redis.call('TIME')\nARGV[1] = string.format('%.0f', " + now + ")\n" +
				"local out = (function()\n" + args[1].(string) + "\nend)()\nout[#out + 1] = tonumber(ARGV[1])\nreturn out"
			if err := next(ctx, cmd); err != nil {
				return err
			}
			reply := cmd.(interface {
				Val() []int64
				SetVal([]int64)
			})
			last := len(reply.Val()) - 1
			if ok {
				*note = reply.Val()[last]
			}
			if times, ok := ctx.Value(timesKey{}).(*[]int64); ok {
				*times = append(*times, reply.Val()[last])
			}
			reply.SetVal(reply.Val()[:last])
			return nil
		}
		return next(ctx, cmd)
	}
}

// A chaos is one history: concurrent clients of one policy.
type chaos struct {
	stores  []core.Store // one for each client
	clients int
	calls   int // of each
	policy  string
	rules   []core.Charge
}

// someRules returns one to four rules of different algorithms. Some of the windows end
// within a history.
func someRules() (rules []core.Charge) {
	windows := []int64{1500, 4000, 3_600_000_000}
	for _, a := range rand.Perm(len(core.Algorithms()))[:1+rand.IntN(4)] {
		q := core.Quota{Algorithm: core.Algorithm(a), Limit: 2 + rand.Int64N(4), Window: windows[rand.IntN(len(windows))]}
		switch q.Algorithm {
		case core.FixedWindow:
			q.Aligned = rand.IntN(2) == 0
		case core.SlidingCells:
			q.Cells = 2 + rand.Int64N(4)
		case core.TokenBucket:
			q.Burst = 2 + rand.Int64N(4)
			if q.Window == windows[2] { // otherwise it is full, dropped, and lacks them again
				q.Missing = rand.Int64N(q.Burst)
			}
		case core.LeakyBucket:
			q.Burst = 2 + rand.Int64N(4)
		case core.Queue:
			q.Burst = 1 + rand.Int64N(4)
			q.MaxWait = rand.Int64N(2) * q.Window
		case core.Ban:
			q.Bar = windows[rand.IntN(len(windows))]
			q.MaxBar = rand.Int64N(2) * 3 * q.Bar
		}
		rules = append(rules, core.Charge{Rule: q.Algorithm.String(), Quota: q})
	}
	return rules
}

// record runs all clients concurrently, and returns what they observed.
func (h *chaos) record(t *testing.T) []porcupine.Operation {
	t.Helper()
	history := make([]porcupine.Operation, h.clients*h.calls)
	began := time.Now()
	var done sync.WaitGroup
	start := make(chan struct{})
	for client := range h.clients {
		done.Go(func() {
			store := h.stores[client%len(h.stores)]
			var admitted []admittance
			<-start
			for i := range h.calls {
				in := h.step(&admitted)
				op := porcupine.Operation{ClientId: client, Input: in, Call: time.Since(began).Nanoseconds()}
				out, err := in.call(store)
				op.Output, op.Return = out, time.Since(began).Nanoseconds()
				if err != nil {
					t.Error(err)
				}
				for i, d := range out.decisions {
					if d.Allowed {
						admitted = append(admitted, admittance{in.asks[i], d})
					}
				}
				history[client*h.calls+i] = op
			}
		})
	}
	close(start)
	done.Wait()
	return history
}

type admittance struct {
	charges  []core.Charge
	decision core.Decision
}

// step draws the next call of a client that was admitted before.
func (h *chaos) step(admitted *[]admittance) step {
	key := strconv.Itoa(rand.IntN(2))
	charges := storetest.Of(h.policy, h.rules...)
	lease := 1 + rand.Uint64N(1<<63)
	for i := range charges {
		charges[i].Cost, charges[i].ID = rand.Int64N(3), lease
		if charges[i].Quota.Algorithm == core.Distinct {
			charges[i].ID = rand.Uint64N(6)
		}
		if i > 0 {
			charges[i].Key = key // the first is shared by all
		}
		if q := &charges[i].Quota; !q.Identified() && !q.Bars() {
			charges[i].Reserve = max(0, rand.Int64N(10)-7)
		}
	}
	if rand.IntN(40) == 0 {
		return step{reset: &charges[rand.IntN(len(charges))]}
	}
	if n := len(*admitted); n > 0 && rand.IntN(2) == 0 {
		i := rand.IntN(n)
		a := (*admitted)[i]
		if c := slices.IndexFunc(a.charges, func(c core.Charge) bool { return c.Quota.Algorithm == core.Concurrency }); c >= 0 && rand.IntN(2) == 0 {
			release := rand.IntN(2) == 0
			return step{lease: &a.charges[c], release: release}
		}
		*admitted = slices.Delete(*admitted, i, i+1)
		if returns := a.returns(); returns != nil {
			return step{returns: returns}
		}
	}
	var asks [][]core.Charge
	together := slices.DeleteFunc(charges, func(c core.Charge) bool {
		watched := !c.Quota.Identified() && !c.Quota.Bars() && rand.IntN(8) == 0
		if watched { // decided alone, beside the others
			asks = append(asks, []core.Charge{c})
		}
		return watched
	})
	if len(together) > 0 {
		asks = slices.Insert(asks, rand.IntN(len(asks)+1), together)
	}
	return step{asks: asks}
}

// returns gives back some or all of what was taken.
func (a *admittance) returns() (returns []core.Return) {
	for i, c := range a.charges {
		if c.Quota.Algorithm == core.Concurrency || c.Cost == 0 {
			continue
		}
		o := a.decision.Outcomes()[i]
		r := core.Return{Charge: c, At: a.decision.At, Remaining: o.Remaining, ResetAfter: o.ResetAfter}
		r.Cost = 1 + rand.Int64N(c.Cost)
		returns = append(returns, r)
	}
	return returns
}

func (in *step) call(store core.Store) (out stepped, err error) {
	ctx := context.WithValue(context.Background(), noteKey{}, &out.at)
	switch {
	case in.holds != nil:
		out.heldOut, err = in.holds.call(ctx, store.(core.Holder))
	case in.returns != nil:
		out.returned, err = store.Return(ctx, in.returns)
	case in.reset != nil:
		err = store.Reset(ctx, []core.Charge{*in.reset})
	case in.release:
		err = store.Release(ctx, []core.Charge{*in.lease})
	case in.lease != nil:
		var held []bool
		if held, err = store.Renew(ctx, []core.Charge{*in.lease}); err == nil {
			out.held = held[0]
		}
	default:
		asks := make([]core.Ask, len(in.asks))
		for i := range asks {
			asks[i].Charges = in.asks[i]
		}
		err = store.Take(context.Background(), asks)
		for i := range asks {
			out.decisions = append(out.decisions, asks[i].Decision)
		}
		out.at = asks[0].Decision.At
	}
	return out, err
}

// linearizable reports the verdict on a history. The calls of a machine that stalls all
// overlap, and their orders are too many to try. So it tries the order of the store's own
// clock first, which proves the history if it fits.
func linearizable(history []porcupine.Operation) porcupine.CheckResult {
	if ordered := byClock(history); ordered != nil &&
		porcupine.CheckOperationsTimeout(allAlgorithms, ordered, 20*time.Second) == porcupine.Ok {
		return porcupine.Ok
	}
	return porcupine.CheckOperationsTimeout(allAlgorithms, history, time.Minute)
}

// byClock returns a history whose calls take no time, at the time of the store's clock. It
// is nil if that contradicts the order of calls, or if a time is not known.
func byClock(history []porcupine.Operation) []porcupine.Operation {
	at := func(op porcupine.Operation) int64 { return op.Output.(stepped).at }
	ordered := slices.Clone(history)
	for i, op := range history {
		if at(op) == 0 {
			return nil
		}
		for _, later := range history {
			if op.Return < later.Call && at(op) >= at(later) {
				return nil
			}
		}
		ordered[i].Call, ordered[i].Return = at(op), at(op)
	}
	return ordered
}

// An apart store makes one Return at a time: of returns that share a call, only the first
// learns the time of Redis.
type apart struct {
	core.Store
	mu sync.Mutex
}

func (a *apart) Return(ctx context.Context, returns []core.Return) ([]core.Returned, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.Store.Return(ctx, returns)
}

// TestLinearizableAlgorithms mixes all algorithms and all calls.
func TestLinearizableAlgorithms(t *testing.T) {
	run := func(t *testing.T, n int, next func() *chaos) {
		kinds := make(map[string]int)
		algorithms := make(map[core.Algorithm]int)
		for i := range n {
			h := next()
			h.policy, h.rules = fmt.Sprint("history", i), someRules()
			history := h.record(t)
			for _, op := range history {
				in := op.Input.(step)
				kinds[in.kind(op.Output.(stepped))]++
			}
			for _, r := range h.rules {
				algorithms[r.Quota.Algorithm]++
			}
			if result := linearizable(history); result != porcupine.Ok {
				for _, op := range history {
					in := op.Input.(step)
					t.Logf("client %d, %d to %d: %s", op.ClientId, op.Call, op.Return, in.tell(op.Output.(stepped)))
				}
				t.Fatalf("history %d of %d: %s", i, n, result)
			}
		}
		t.Logf("%d histories, all linearizable, none unknown; calls %v; histories with each algorithm %v", n, kinds, algorithms)
	}
	t.Run("memory", func(t *testing.T) {
		run(t, histories(1000), func() *chaos {
			return &chaos{stores: []core.Store{newSeen(true)}, clients: 4, calls: 6}
		})
	})
	t.Run("redis", func(t *testing.T) {
		client := redistest.Real(t)
		var stores []core.Store
		for range 2 {
			c := redistest.Closing(t, redis.NewClient(client.Options()))
			c.AddHook(telltime{})
			stores = append(stores, &apart{Store: redisstore.New(c, &redisstore.Options{Timeout: time.Minute})})
		}
		run(t, histories(300), func() *chaos { return &chaos{stores: stores, clients: 8, calls: 3} })
	})
}

// tell formats a call and its answer.
func (in *step) tell(out stepped) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s at %d held %v:", in.kind(out), out.at, out.held)
	if in.holds != nil {
		fmt.Fprintf(&b, " %+v: %+v", *in.holds, out.heldOut)
	}
	for i, charges := range in.asks {
		d := &out.decisions[i]
		fmt.Fprintf(&b, " ask allowed %v delay %d", d.Allowed, d.Delay)
		for j, c := range charges {
			fmt.Fprintf(&b, " [%+v of %q cost %d id %d reserve %d", c.Quota, c.Key, c.Cost, c.ID, c.Reserve)
			if j < len(d.Outcomes()) {
				fmt.Fprintf(&b, ": %+v", d.Outcomes()[j])
			}
			b.WriteString("]")
		}
	}
	if in.lease != nil {
		fmt.Fprintf(&b, " [lease %d of %q]", in.lease.ID, in.lease.Key)
	}
	for i, r := range in.returns {
		fmt.Fprintf(&b, " [%v of %q %d taken at %d, returned %+v]", r.Quota.Algorithm, r.Key, r.Cost, r.At, out.returned[i])
	}
	if in.reset != nil {
		fmt.Fprintf(&b, " [%v of %q]", in.reset.Rule, in.reset.Key)
	}
	return b.String()
}

func (in *step) kind(out stepped) string {
	switch {
	case in.holds != nil:
		return in.holds.kind(&out.heldOut)
	case in.returns != nil:
		return "returned"
	case in.reset != nil:
		return "reset"
	case in.release:
		return "released"
	case in.lease != nil:
		return "renewed"
	case !slices.ContainsFunc(out.decisions, func(d core.Decision) bool { return !d.Allowed }):
		return "admitted"
	}
	return "refused"
}

// TestLinearizableAlgorithmsCanFail checks a store that reads and then writes, with and
// without other goroutines in between.
func TestLinearizableAlgorithmsCanFail(t *testing.T) {
	for _, perturb := range []bool{false, true} {
		n, caught := histories(300), 0
		for i := range n {
			h := &chaos{stores: []core.Store{looksFirst{newSeen(perturb)}}, clients: 4, calls: 6,
				policy: fmt.Sprint("history", i), rules: someRules()}
			if linearizable(h.record(t)) == porcupine.Illegal {
				caught++
			}
		}
		t.Logf("perturbed %v: caught in %d of %d histories", perturb, caught, n)
		if perturb {
			require.Positive(t, caught)
		}
	}
}

// looksFirst reads, and then admits by what it read. A single caller does not notice.
type looksFirst struct{ core.Store }

func (s looksFirst) Take(ctx context.Context, asks []core.Ask) error {
	look := slices.Clone(asks)
	for i := range look {
		look[i].Charges = costless(look[i].Charges)
	}
	if err := s.Store.Take(ctx, look); err != nil {
		return err
	}
	err := s.Store.Take(ctx, asks)
	for i := range asks {
		fit := true
		for j, o := range look[i].Decision.Outcomes() {
			fit = fit && asks[i].Charges[j].Fits(o.Remaining)
		}
		asks[i].Decision.Allowed = asks[i].Decision.Allowed || fit
	}
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
