package livepage

import (
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/race"
	"github.com/routelimit/limit/operate"
)

// TestShared checks that viewers share a state, and that many different queries do not
// grow what is kept.
func TestShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, p := pageOf(nil, nil)
		policy := bind(t, limiter, limit.Named("api", limit.PerUser(time.Hour, 10)))
		first := p.view(query{})
		take(t, policy, "ann")
		assert.Same(t, &first[0], &p.view(query{})[0])
		for i := range 1000 {
			p.view(query{offset: i})
		}
		assert.Len(t, p.states.views, 2*maxViewers)
		time.Sleep(time.Second)
		assert.NotEqual(t, string(first), string(p.view(query{})))
		assert.Len(t, p.states.views, 1)
	})
}

// hostile are keys that a client may choose.
func hostile() (list []string) {
	for i := range 300 {
		list = append(list, fmt.Sprintf("%s%d", []string{strings.Repeat("\x00", 120), "\xff\xfe" + strings.Repeat("\x1b", 100),
			"<script>alert(1)</script>", strings.Repeat("\u202e", 40), "\n\ndata: {}\n\n", `"}]}`}[i%6], i))
	}
	return list
}

// TestSize checks that a state with 1,000 policies, full lists and the worst keys has at
// most 64 kB, and is one line.
func TestSize(t *testing.T) {
	limiter, p := pageOf(nil, nil)
	keys := hostile()
	for i := range 1000 {
		policy := bind(t, limiter, limit.Named(fmt.Sprintf("policy-with-a-rather-long-name-%d", i),
			limit.PerUser(time.Hour, 1), limit.Rule{Key: limit.ByUser, Limit: 9000, Algorithm: limit.Concurrency{}}, limit.PerUser(time.Minute, 90_000)))
		for range 100 {
			take(t, policy, keys[rand.IntN(len(keys))])
		}
	}
	// The largest counts: those of a busy year would have as many digits.
	for _, policy := range p.collector.policies {
		for j := range policy.counts {
			policy.counts[j] = count{1, 4_000_000_000, 4_000_000_000, 1}
		}
		policy.givenBack = &policy.counts
	}
	largest := 0
	for _, text := range []string{"", "limit=100", "sort=full&order=use&limit=100", "policy=policy-with-a-rather-long-name-7"} {
		s, size := viewOf(t, p, text)
		largest = max(largest, size)
		assert.Equal(t, 1000, s.Policies.Total)
		assert.GreaterOrEqual(t, len(s.Policies.Rows), 20)
		assert.NotEmpty(t, s.Keys)
		assert.GreaterOrEqual(t, len(s.Refusals), 3) // of those with the longest keys
		values, _ := url.ParseQuery(text)
		assert.NotContains(t, string(p.view(queryOf(values))), "\n")
	}
	assert.LessOrEqual(t, largest, stateBytes-2000, "the part of the viewer is added")
	t.Logf("the largest state has %d bytes", largest)

	// After an hour in which the mode changed every 10 seconds, some rows are on the next page.
	p.collector.start = p.collector.start.Add(-7 * 24 * time.Hour)
	modes, slot := &p.collector.modes, p.collector.now().slot
	for i := range uint32(shownHour) {
		m := modeCount{at: slot - i}
		m.counts[2+i%2] = 1
		modes[m.at%keptHour] = m
	}
	for _, policy := range p.collector.policies {
		for j := range policy.counts {
			policy.counts[j] = count{slot - uint32(j), 4_000_000_000, 4_000_000_000, 1}
		}
	}
	s, size := viewOf(t, p, "limit=100")
	assert.Len(t, s.Modes, shownHour)
	assert.LessOrEqual(t, size, stateBytes-2000)
	assert.Positive(t, s.Policies.Next)
	assert.Len(t, s.Policies.Rows, s.Policies.Next)
	t.Logf("with all modes, it has %d bytes and %d policies", size, len(s.Policies.Rows))

	// An everyday one has what was asked for.
	limiter, p = pageOf(nil, nil)
	for i := range 1000 {
		policy := bind(t, limiter, limit.Named(fmt.Sprintf("GET.api.v1.things.%d", i), limit.PerUser(time.Hour, 1), limit.PerUser(time.Minute, 1000)))
		for j := range 60 {
			take(t, policy, fmt.Sprintf("203.0.113.%d", j/2))
		}
	}
	s, size = viewOf(t, p, "")
	assert.LessOrEqual(t, size, stateBytes-2000)
	assert.Len(t, s.Policies.Rows, 50)
	assert.Len(t, s.Keys, 20)
	assert.GreaterOrEqual(t, len(s.Refusals), 30)
	t.Logf("a usual state has %d bytes, with %d refusals", size, len(s.Refusals))
}

// TestBounds checks that further policies and rules are not listed, and take no memory.
func TestBounds(t *testing.T) {
	c := newCollector(nil)
	for i := range maxPolicies - 1 {
		c.policies[fmt.Sprint(i)] = &policy{}
	}
	c.rules = maxRules - 1
	limiter := limit.New(nil, &limit.Options{Log: quiet})
	operate.Observe(limiter, c.observe)
	for i := range 3 {
		take(t, bind(t, limiter, limit.Named(fmt.Sprintf("api-%d", i), limit.PerUser(time.Hour, 1), limit.PerUser(time.Minute, 1))), "ann")
	}
	tt := &totals{now: c.now(), start: time.Now()}
	c.total(tt)
	assert.Len(t, tt.rows, maxPolicies)
	assert.Equal(t, int64(2), tt.state.Policies.Unlisted)
	assert.Equal(t, map[string]int64{"exact": 3}, tt.state.ModeCounts)
	rules := 0
	for _, p := range c.policies {
		rules += len(p.rules)
	}
	assert.Equal(t, 1, rules)
}

// measured is a variable of the package, so that the collector lives until it is dropped.
var measured *collector

// TestMemory measures what policies and rules take, and that keys take no more than the
// bound of package topkeys.
func TestMemory(t *testing.T) {
	race.Skip(t)
	if testing.Short() {
		t.Skip("counts bytes")
	}
	const alone = "LIMIT_MEMORY_ALONE"
	if os.Getenv(alone) == "" { // goroutines that other tests have left would count too
		process := exec.Command(os.Args[0], "-test.run=^TestMemory$", "-test.v")
		process.Env = append(os.Environ(), alone+"=1")
		printed, err := process.CombinedOutput()
		t.Logf("%s", printed)
		require.NoError(t, err)
		return
	}
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	freed := func(drop func()) int64 { // by drop
		before := heap()
		drop()
		return before - heap()
	}
	list := decisions(t, 1000, 1000, true)
	// What the runtime takes and frees meanwhile counts too: the median is nearest.
	median := func(rounds int, measure func() int64) int64 {
		list := make([]int64, rounds)
		for i := range list {
			list[i] = measure()
		}
		slices.Sort(list)
		return list[rounds/2]
	}
	empty := median(9, func() int64 {
		measured = newCollector(nil)
		return freed(func() { measured = nil })
	})
	of := func(drop func()) int64 {
		return median(9, func() int64 {
			measured = newCollector(nil)
			for i := range list {
				measured.observe(nil, list[i], nil)
			}
			return freed(drop)
		})
	}
	keys := of(func() { measured.top = nil }) / 1000
	counts := (of(func() { measured = nil })-empty)/1000 - keys
	runtime.KeepAlive(list)
	t.Logf("%d bytes without policies; for each policy with two rules, %d of counts, and %d of one key and a global one", empty, counts, keys)
	assert.Less(t, empty, int64(512<<10))
	assert.Less(t, counts, int64(2<<10))
	assert.Less(t, keys, int64(4<<10))

	many := median(3, func() int64 {
		limiter, p := pageOf(nil, nil)
		policy := bind(t, limiter, limit.Named("api", limit.PerUser(time.Hour, 1)))
		for i := range 100_000 {
			take(t, policy, fmt.Sprint("user-", i))
			take(t, policy, fmt.Sprint("user-", i))
		}
		measured = p.collector
		defer runtime.KeepAlive(limiter)
		return freed(func() { measured, *p.collector = nil, collector{} })
	})
	t.Logf("%d bytes after 100,000 keys of one rule", many)
	assert.Less(t, many, int64(512<<10))
}

// TestRace observes decisions, and makes states of them, at the same time.
func TestRace(t *testing.T) {
	limiter, p := pageOf(nil, nil)
	stop := make(chan struct{})
	var all sync.WaitGroup
	for i := range 4 {
		policy := bind(t, limiter, limit.Named(fmt.Sprintf("api-%d", i), limit.PerUser(time.Hour, 3)))
		all.Go(func() {
			for j := 0; ; j++ {
				select {
				case <-stop:
					return
				default:
					take(t, policy, fmt.Sprint(j%50))
				}
			}
		})
	}
	for i := range 100 {
		p.states.second = 0 // so that each state is new
		p.view(query{limit: 50, offset: i % 3, order: "use"})
	}
	close(stop)
	all.Wait()
}

// TestAllocations checks that the page costs a decision no allocation: one of keys that are
// tracked, and a refusal by a ban, behind a proxy.
func TestAllocations(t *testing.T) {
	race.Skip(t) // which adds some
	proxies := limit.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	_, p := pageOf(nil, nil)
	p.limiter = limit.New(nil, &limit.Options{Log: quiet, Proxies: proxies})
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "10.1.2.3:4711"
	r.Header.Set("X-Forwarded-For", "198.51.100.7, 203.0.113.9")
	for _, d := range append(decisions(t, 1, 1, false), limit.Decision{Mode: core.ModeBarred}) {
		p.collector.observe(r, d, nil)
		assert.Zero(t, testing.AllocsPerRun(1000, func() { p.collector.observe(r, d, nil) }), d.Mode)
	}
}
