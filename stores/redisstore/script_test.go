package redisstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/race"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/lua"
	"github.com/routelimit/limit/stores/storetest"
)

// start is a time that tests set; the store keeps keys for as long as a test
// may take, since the server's own clock goes on.
const start = int64(1_800_000_000_000_000)

// patient is for tests that are not about time: the machine may be loaded.
var patient = Options{Timeout: time.Minute}

// at returns a store that decides at *now.
func at(client redis.UniversalClient, now *int64) *Store {
	s := New(client, &patient)
	s.now = func() string { return strconv.FormatInt(*now, 10) }
	s.grace = int(time.Hour / time.Millisecond)
	return s
}

// ask returns a request of one ask on charges of policy p.
func ask(charges []core.Charge) []core.Ask {
	return []core.Ask{{Charges: storetest.Of("p", charges...)}}
}

func named(policy, rule, key string) *core.Charge {
	return &core.Charge{Policy: policy, Rule: rule, Key: key}
}

// TestBatches compares the script, batch by batch, with core.Decide called for
// one decision after the other. LIMIT_ALGORITHM=word has rules of one algorithm,
// and LIMIT_STEPS=n as many batches in a schedule.
func TestBatches(t *testing.T) {
	now := start
	schedules := 300
	if race.Enabled {
		schedules = 30
	}
	if n, err := strconv.Atoi(os.Getenv("LIMIT_SCHEDULES")); err == nil {
		schedules = n
	}
	compareBatches(t, at(redistest.Client(t), &now), &now, schedules)
}

func compareBatches(t *testing.T, store *Store, clock *int64, schedules int) {
	decisions, refused, steps := 0, 0, 30
	if n, err := strconv.Atoi(os.Getenv("LIMIT_STEPS")); err == nil {
		steps = n
	}
	first, _ := strconv.Atoi(os.Getenv("LIMIT_FIRST"))
	for schedule := first; schedule < schedules; schedule++ {
		random := rand.New(rand.NewPCG(1, uint64(schedule)))
		*clock = start // or it would reach the year 2255, where doubles end
		rules := randomRules(random, fmt.Sprint("p", schedule))
		model := make(map[string]core.State)
		for step := range steps {
			now := max(start/2, *clock+randomStep(random, rules))
			if now < *clock {
				forget(t, store, rules[0].Policy, model, *clock)
			}
			*clock = now
			if random.IntN(10) == 0 { // a limit is changed
				if q := &rules[random.IntN(len(rules))].Quota; q.Algorithm == core.SlidingLog || q.Limit < 1000 {
					q.Limit = min(randomLimit(random), q.Algorithm.MaxLimit())
					if q.Algorithm == core.SlidingLog && random.IntN(2) == 0 {
						q.Window = randomWindow(random)
					}
				}
			}
			batch := randomBatch(random, rules)
			encoder := lua.NewRules(store.prefix, batch[0])
			reply, _, err := store.decide(context.Background(), encoder, batch, nil, false)
			require.NoError(t, err)
			require.NoError(t, encoder.Decode(reply, batch, func(i int, err error) {
				require.NoError(t, err)
				for _, ask := range batch[i] {
					var states []core.State
					for _, c := range ask.Charges {
						id := c.Rule + "/" + c.Key
						if model[id] == nil {
							model[id] = core.NewState(c.Quota.Algorithm)
						}
						states = append(states, model[id])
					}
					want := core.Decide(now, ask.Charges, states)
					require.Equal(t, want, ask.Decision, "schedule %d, step %d, request %d of %d at %d: %+v",
						schedule, step, i, len(batch), now-start, batch[i])
					decisions++
					if !want.Allowed {
						refused++
					}
				}
			}))
			compareLeases(t, store, random, batch, model, now)
			compareDebts(t, store, random, rules, model, now)
		}
	}
	t.Logf("%d schedules, %d decisions, %d of them refused", schedules, decisions, refused)
}

// forget drops the keys that have expired by now, before the clock steps back.
func forget(t *testing.T, store *Store, policy string, model map[string]core.State, now int64) {
	for id, state := range model {
		if state.Expires() <= now {
			rule, key, _ := strings.Cut(id, "/")
			require.NoError(t, store.client.Del(t.Context(), lua.Key(store.prefix, named(policy, rule, key))).Err())
			delete(model, id)
		}
	}
}

// compareLeases renews or releases leases of a batch, in which decisions took
// under ids of their own.
func compareLeases(t *testing.T, store *Store, random *rand.Rand, batch [][]core.Ask, model map[string]core.State, now int64) {
	for _, asks := range batch {
		charges := slices.DeleteFunc(slices.Clone(asks[0].Charges), func(c core.Charge) bool { return c.Quota.Algorithm != core.Concurrency })
		if len(charges) == 0 || random.IntN(4) > 0 {
			continue
		}
		var want []bool
		renew := random.IntN(2) == 0
		for _, c := range charges {
			leases := model[c.Rule+"/"+c.Key]
			if renew {
				want = append(want, leases.Renew(&c.Quota, now, c.ID))
			} else {
				leases.Release(&c.Quota, now, c.ID)
			}
		}
		if !renew {
			require.NoError(t, store.Release(t.Context(), charges))
			continue
		}
		held := must.Get(store.Renew(t.Context(), charges))(t)
		require.Equal(t, want, held, "at %d: %+v", now-start, charges)
	}
}

// compareDebts takes debts of some of the rules.
func compareDebts(t *testing.T, store *Store, random *rand.Rand, rules []core.Charge, model map[string]core.State, now int64) {
	asks := make([]core.Ask, 1+random.IntN(2))
	for i := range asks {
		for _, c := range randomBatch(random, rules)[0][0].Charges {
			if random.IntN(2) == 0 {
				continue
			}
			c.Debt, c.Reserve = true, 0
			c.Age = pickOf(random, 0, 0, 1, random.Int64N(c.Quota.Window), c.Quota.Window-1, c.Quota.Window, random.Int64N(1+c.Quota.Span()), now, core.MaxTime)
			if c.Quota.Leases() && c.ID == 0 {
				c.ID = 1
			}
			switch random.IntN(8) {
			case 0:
				c.Cost = pickOf(random, core.MaxCost, core.MaxCost-1, core.MaxLimit)
			case 1:
				c.Cost = 1 + random.Int64N(4*c.Quota.Limit)
			}
			asks[i].Charges = append(asks[i].Charges, c)
		}
	}
	if random.IntN(3) > 0 || core.ValidateAsks(asks) != nil {
		return
	}
	require.NoError(t, store.Take(t.Context(), asks))
	for _, ask := range asks {
		var states []core.State
		for _, c := range ask.Charges {
			id := c.Rule + "/" + c.Key
			if model[id] == nil {
				model[id] = core.NewState(c.Quota.Algorithm)
			}
			states = append(states, model[id])
		}
		want := core.Decide(now, ask.Charges, states)
		require.Equal(t, want.Outcomes(), ask.Decision.Outcomes(), "at %d: %+v", now-start, ask.Charges)
		require.True(t, ask.Decision.Allowed && ask.Decision.At == want.At)
	}
}

func pickOf(random *rand.Rand, numbers ...int64) int64 { return numbers[random.IntN(len(numbers))] }

func randomRules(random *rand.Rand, name string) []core.Charge {
	rules := make([]core.Charge, 1+random.IntN(3))
	for i := range rules {
		rules[i].Policy, rules[i].Rule = name, fmt.Sprint(name, "r", i)
		rules[i].Quota = randomQuota(random, randomWindow(random))
		counts := !rules[i].Quota.Identified() && !rules[i].Quota.Bars()
		if (counts || rules[i].Quota.Leases()) && random.IntN(6) == 0 {
			rules[i].Reserve = 1 + random.Int64N(4)
		}
	}
	return rules
}

var berlin = func() *time.Location {
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		panic(err)
	}
	return zone
}()

// randomQuota returns a quota of any algorithm, with the fields and up to the limit that
// its row in core has.
func randomQuota(random *rand.Rand, window int64) core.Quota {
	q := core.Quota{Limit: randomLimit(random), Window: window}
	q.Algorithm = core.Algorithm(max(0, random.IntN(len(core.Algorithms())+4)-4)) // logs more often
	if word := os.Getenv("LIMIT_ALGORITHM"); word != "" {
		q.Algorithm, _ = core.ParseAlgorithm(word)
	}
	if q.Algorithm != core.SlidingLog && random.IntN(10) == 0 { // odd rates, products above 2^53
		q.Limit = pickOf(random, 7, 999_999_937, core.MaxLimit)
	}
	q.Limit = min(q.Limit, q.Algorithm.MaxLimit())
	fields := q.Algorithm.Fields()
	switch choice := random.IntN(3); {
	case choice == 0 && fields.Has(core.FieldAligned):
		q.Aligned = true
	case choice == 1 && fields.Has(core.FieldCalendar):
		q.Calendar = core.Calendar{Unit: core.CalendarUnit(1 + random.IntN(4)), Zone: berlin}
	}
	if fields.Has(core.FieldCells) {
		q.Cells = pickOf(random, 2, 3, 10, core.MaxCells)
	}
	if fields.Has(core.FieldBurst) {
		q.Burst = min(random.Int64N(2*q.Limit), core.MaxLimit)
		if q.Validate() != nil {
			q.Burst++
		}
	}
	if fields.Has(core.FieldMissing) && random.IntN(2) == 0 {
		q.Missing = random.Int64N(q.Burst + 1)
	}
	if fields.Has(core.FieldMaxWait) && random.IntN(2) == 0 {
		q.MaxWait = random.Int64N(2 * window)
	}
	if fields.Has(core.FieldBar) {
		q.Bar = randomWindow(random)
		q.MaxBar = pickOf(random, 0, q.Bar, 5*q.Bar)
	}
	return q
}

func randomLimit(random *rand.Rand) int64 {
	limits := []int64{1, 2, 3, 5, 8, 100, 127, 128, 129, 130, 200, 700}
	return limits[random.IntN(len(limits))]
}

func randomWindow(random *rand.Rand) int64 {
	windows := []int64{1_000, 10_000, 1_000_000, 1_900_000, 2_000_000, 3_600_000_000, 4_294_967_295, 4_294_967_296, 86_400_000_000}
	return windows[random.IntN(len(windows))]
}

func randomStep(random *rand.Rand, rules []core.Charge) int64 {
	w := rules[random.IntN(len(rules))].Quota.Window
	switch random.IntN(8) {
	case 0:
		return 0
	case 1:
		return 1
	case 2:
		return w - 1
	case 3:
		return w
	case 4:
		return 3 * w
	case 5:
		return -random.Int64N(2 * w)
	default:
		return random.Int64N(w)
	}
}

// randomBatch returns requests with an ask for all rules, and some with further asks for
// a part of them.
func randomBatch(random *rand.Rand, rules []core.Charge) [][]core.Ask {
	shape := [][]core.Charge{rules}
	for random.IntN(3) == 0 && len(shape) < 4 {
		from := random.IntN(len(rules))
		some := slices.Clone(rules[from : from+1+random.IntN(len(rules)-from)])
		if random.IntN(2) == 0 {
			some[0].Reserve = 0
		}
		shape = append(shape, some)
	}
	batch := make([][]core.Ask, 1+random.IntN(20))
	for i := range batch {
		for _, rules := range shape {
			batch[i] = append(batch[i], core.Ask{Charges: randomCharges(random, rules)})
		}
	}
	return batch
}

func randomCharges(random *rand.Rand, rules []core.Charge) (charges []core.Charge) {
	for _, c := range rules {
		c.Key = fmt.Sprint("k", random.IntN(3))
		c.Cost = 1
		if random.IntN(3) == 0 {
			c.Cost = random.Int64N(c.Quota.Capacity() + 2)
		}
		c.ID = random.Uint64N(50)<<55 | 1 // different in bits that doubles hold
		if c.Quota.Algorithm == core.Distinct && random.IntN(10) == 0 {
			c.ID = 0
		}
		charges = append(charges, c)
	}
	return charges
}
