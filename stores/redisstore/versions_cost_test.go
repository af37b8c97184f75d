package redisstore

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/lua"
)

// TestCostOfVersions measures how long Redis takes for a decision by one version of a rule,
// and by two in turn, and fails if two take more than twice as long, but for what is known. LIMIT_LONGEST=1 runs
// it, and wants a machine with nothing else to do.
func TestCostOfVersions(t *testing.T) {
	if os.Getenv("LIMIT_LONGEST") == "" {
		t.Skip("set LIMIT_LONGEST=1 to run it")
	}
	client := redistest.Real(t)
	const second, hour = 1_000_000, 3600_000_000
	log := func(limit, window int64) core.Quota { return core.Quota{Limit: limit, Window: window} }
	distinct := func(limit, window int64) core.Quota {
		return core.Quota{Algorithm: core.Distinct, Limit: limit, Window: window}
	}
	ban := func(limit, window int64) core.Quota {
		return core.Quota{Algorithm: core.Ban, Limit: limit, Window: window, Bar: hour}
	}
	leases := func(limit, window int64) core.Quota {
		return core.Quota{Algorithm: core.Concurrency, Limit: limit, Window: window}
	}
	of := func(a core.Algorithm, limit, window int64) core.Quota {
		return costQuota(core.Quota{Algorithm: a, Limit: limit, Window: window})
	}
	for _, test := range []struct {
		one, other core.Quota
		units      int64 // taken before
	}{
		{log(5, hour), log(4, hour), 2},
		{log(30, 10*second), log(3, second), 2},
		{log(100, hour), log(50, 60*second), 40},
		{log(1000, hour), log(900, hour), 20},
		{log(1000, hour), log(900, hour), 800},
		{log(1000, hour), log(100, second), 800},
		{log(1000, hour), log(100, second), 60},
		{log(100_000, hour), log(90_000, hour), 80_000},
		{log(100_000, hour), log(90_000, 60*second), 80_000},
		{log(100_000, hour), log(100, 60*second), 80_000},
		{distinct(100, hour), distinct(50, 60*second), 40},
		{ban(100, hour), ban(50, 60*second), 20},
		{leases(100, hour), leases(90, 60*second), 40},
		{of(core.FixedWindow, 30, 10*second), of(core.FixedWindow, 20, 5*second), 30},
		{of(core.FixedWindow, 30, 10*second), of(core.FixedWindow, 5, 5*second), 30}, // above the smaller limit
		{of(core.SlidingCells, 30, 10*second), of(core.SlidingCells, 20, 5*second), 30},
		{of(core.SlidingCounter, 30, 10*second), of(core.SlidingCounter, 20, 5*second), 30},
		{of(core.TokenBucket, 30, 10*second), of(core.TokenBucket, 20, 5*second), 30},
		{of(core.Queue, 30, 10*second), of(core.Queue, 20, 5*second), 30},
	} {
		name := fmt.Sprintf("%v %d beside %d, %d units", test.one.Algorithm, test.one.Limit, test.other.Limit, test.units)
		t.Run(name, func(t *testing.T) {
			for _, keys := range []int{1, 64} {
				if test.units > 1000 && keys > 1 {
					keys = 8
				}
				us := costs(t, client, keys, test.units, test.one, test.other)
				t.Logf("%d keys: %.2f and %.2f µs alone, %.2f in turn: %.2f times", keys, us[0], us[1], us[2], us[2]/max(us[0], us[1]))
				assert.LessOrEqual(t, us[2], 2*max(us[0], us[1]))
			}
		})
	}
}

// TestCostOfAlgorithms measures the same for versions with two algorithms, and fails if they take
// more than 2.5 times as long in each of three measurements. LIMIT_LONGEST=1 runs it.
func TestCostOfAlgorithms(t *testing.T) {
	if os.Getenv("LIMIT_LONGEST") == "" {
		t.Skip("set LIMIT_LONGEST=1 to run it")
	}
	client := redistest.Real(t)
	var quotas []core.Quota
	for _, a := range []core.Algorithm{core.SlidingLog, core.TokenBucket, core.SlidingCells, core.FixedWindow, core.SlidingCounter, core.Queue} {
		quotas = append(quotas, costQuota(core.Quota{Algorithm: a, Limit: 30, Window: 10_000_000}))
	}
	quotas = append(quotas, core.Quota{Limit: 1000, Window: 10_000_000})
	for i, one := range quotas {
		for _, other := range quotas[:i] {
			if one.Algorithm.Alike(other.Algorithm) {
				continue
			}
			for _, keys := range []int{1, 64} {
				times := math.Inf(1)
				for try := 0; try < 3 && times > 2.5; try++ { // a busy machine adds up to a tenth
					us := costs(t, client, keys, 30, one, other)
					times = min(times, us[2]/max(us[0], us[1]))
					t.Logf("%v %d and %v %d, %d keys: %.2f and %.2f µs alone, %.2f in turn: %.2f times, %.2f of both", one.Algorithm, one.Limit,
						other.Algorithm, other.Limit, keys, us[0], us[1], us[2], us[2]/max(us[0], us[1]), us[2]/(us[0]+us[1]))
				}
				assert.LessOrEqual(t, times, 2.5)
			}
		}
	}
}

// costQuota fills in what the algorithm of a quota needs.
func costQuota(q core.Quota) core.Quota {
	if q.Refills() {
		q.Burst = q.Limit
	}
	if q.Algorithm == core.SlidingCells {
		q.Cells = 10
	}
	if q.Queues() {
		q.MaxWait = 1_000_000
	}
	return q
}

// costs returns the µs that Redis takes for a decision in a call on some keys, by each of two
// quotas alone and by both in turn: the medians of measurements that take turns, since other
// programs may use the machine.
func costs(t *testing.T, client *redis.Client, keys int, units int64, one, other core.Quota) (us [3]float64) {
	require.NoError(t, client.FlushDB(t.Context()).Err())
	var runs [3]*costRun
	for i, quotas := range [][]core.Quota{{one}, {other}, {one, other}} {
		runs[i] = newCostRun(t, client, fmt.Sprint(i), keys, units, quotas)
	}
	var all [3][]float64
	for range 13 {
		for i, r := range runs {
			all[i] = append(all[i], r.measure())
		}
	}
	for i := range all {
		slices.Sort(all[i])
		us[i] = all[i][len(all[i])/2]
	}
	return us
}

// A costRun makes calls by quotas in turn.
type costRun struct {
	t      *testing.T
	client *redis.Client
	rule   string
	keys   int
	quotas []core.Quota
	calls  []*batcher // by each quota
	now    int64
	each   int64 // µs from call to call, so that as many units come as leave
	id     uint64
}

func newCostRun(t *testing.T, client *redis.Client, rule string, keys int, units int64, quotas []core.Quota) *costRun {
	r := &costRun{t: t, client: client, rule: rule, keys: keys, quotas: quotas, now: start, each: quotas[0].Window / max(1, units)}
	store := at(client, &r.now)
	for _, q := range quotas {
		r.calls = append(r.calls, &batcher{store: store, rules: lua.NewRules(store.prefix, r.request(q, 0, 1).asks)})
	}
	most := int64(1)
	if quotas[0].Algorithm == core.SlidingLog {
		most = max(1, units/100)
	}
	units = min(units, quotas[0].Limit*9/10)
	for done := int64(0); done < units; done += most {
		r.now += r.each * most
		r.call(0, min(most, units-done))
	}
	return r
}

func (r *costRun) request(q core.Quota, key int, n int64) *request {
	r.id++
	return &request{ctx: r.t.Context(), asks: ask([]core.Charge{
		{Rule: r.rule, Key: strconv.Itoa(key), Quota: q, Cost: n, ID: r.id * 0x9e3779b97f4a7c15},
	})}
}

// call makes a call by the i-th quota that takes n units of each key.
func (r *costRun) call(i int, n int64) {
	batch := make([]*request, r.keys)
	for k := range batch {
		batch[k] = r.request(r.quotas[i], k, n)
	}
	r.calls[i].call(r.t.Context(), batch)
	for _, request := range batch {
		require.NoError(r.t, request.err)
	}
}

func (r *costRun) measure() float64 {
	require.NoError(r.t, r.client.ConfigResetStat(r.t.Context()).Err())
	calls := 40
	if r.keys == 1 {
		calls = 100
	}
	for i := range calls {
		r.now += r.each
		r.call(i%len(r.quotas), 1)
	}
	total := 0
	for _, m := range evalTime.FindAllStringSubmatch(r.client.Info(r.t.Context(), "commandstats").Val(), -1) {
		usec := must.Get(strconv.Atoi(m[1]))(r.t)
		total += usec
	}
	return float64(total) / float64(calls) / float64(r.keys)
}

var evalTime = regexp.MustCompile(`cmdstat_evalsha:calls=\d+,usec=(\d+)`)
