package proof

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/faultproxy"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/operate"
	"github.com/routelimit/limit/stores/redisstore"
)

// A setup is a limiter as users make it, in two lines and with the defaults of
// go-redis, on a Redis behind a proxy that breaks it.
type setup struct {
	t       *testing.T
	server  *redistest.Server
	proxy   *faultproxy.Proxy
	admin   *redis.Client // of the server itself
	client  redis.UniversalClient
	limiter *limit.Limiter
	clock   *os.File // sets its clock, if it can be set
}

// A fault is one that a limiter on Redis can meet.
type fault struct {
	name   string
	quick  bool                               // whether it is part of every run
	clock  bool                               // whether the clock of the server must move
	args   []string                           // of the server
	client func(*setup) redis.UniversalClient // nil: the defaults
	begin  func(*setup) (end func())

	mode    core.Mode // of decisions while it lasts
	failing bool      // whether requests may fail: an error that a client could cause
	over    int       // calls in flight that may be admitted above the limit
	forgets bool      // whether the store loses its data without failing, so that a limit begins anew
	mute    bool      // whether Redis runs calls whose replies do not arrive, while it lasts
}

var (
	fewLimit     = 500
	fewRules     = limit.Named("few", limit.Global(time.Hour, int64(fewLimit)))
	counterLimit = int64(1_000_000_000)
	loadRules    = limit.Named("load", limit.PerUser(time.Hour, 50_000),
		limit.Rule{Name: "count", Key: limit.Everyone, Limit: counterLimit, Window: time.Hour, Algorithm: limit.FixedWindow{}})
)

// full reports whether to run all faults, rather than the quick ones.
func full() bool { return os.Getenv("LIMIT_FAULTS") != "" }

// TestFaults produces each fault under load and measures what it costs. With
// LIMIT_FAULTS it produces all of them, for longer, and writes the table of
// docs/faults.md. It always asserts the modes, that no request fails or counts
// twice, that no limit is exceeded, and that no goroutine is left.
func TestFaults(t *testing.T) {
	redistest.Real(t)
	var rows []string
	var delay time.Duration // of the scheduler, at most
	for _, f := range faults {
		if !full() && !f.quick {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			awaitGoroutines(t, runtime.NumGoroutine())
			row, slept := f.measure(t)
			t.Log(row, "scheduling delay:", slept)
			rows, delay = append(rows, row), max(delay, slept)
		})
	}
	if len(rows) == len(faults) && !t.Failed() {
		writeTable(t, "../docs/faults.md", rows, delay)
	}
}

// awaitGoroutines asserts that no goroutines are left at the end, other than two that
// end with the test.
func awaitGoroutines(t *testing.T, before int) {
	t.Cleanup(func() { // after the cleanups of the proxy and the servers
		for end := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before+2; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				stacks := make([]byte, 1<<16)
				t.Errorf("goroutines are left:\n%s", stacks[:runtime.Stack(stacks, true)])
				return
			}
		}
	})
}

// measure returns the row of a fault, and the longest scheduling delay while it lasted.
func (f *fault) measure(t *testing.T) (row string, delay time.Duration) {
	b := &setup{t: t}
	if f.clock {
		b.clock = preloadClock(t)
	}
	b.server = redistest.Launch(t, f.args...)
	b.admin = redis.NewClient(&redis.Options{Addr: b.server.Addr, ReadTimeout: time.Minute})
	defer b.admin.Close()
	b.proxy = faultproxy.Start(t, b.server.Addr)
	if f.client == nil {
		b.client = redis.NewClient(&redis.Options{Addr: b.proxy.Addr()})
	} else {
		b.client = f.client(b)
	}
	defer b.client.Close()
	b.limiter = limit.New(redisstore.New(b.client, nil), nil)

	l := startWorkload(b.limiter)
	defer l.end()
	phase := 300 * time.Millisecond
	if full() {
		phase = time.Second
	}
	time.Sleep(phase) // of load: nothing is waited for
	began := l.now()
	end := f.begin(b)
	time.Sleep(2 * phase)
	if f.mode == core.ModeExact { // a machine that stalls decides by local limits for a while
		l.exactAfter(t, began)
	}
	ended := l.now()
	end()
	back := l.exactAfter(t, l.now())
	time.Sleep(phase)
	l.end()
	requests := slices.Concat(l.of[:]...)

	// Take what is left of the few, so that all 500 are accounted for.
	few, refused := bind(b.limiter, fewRules), 0
	redistest.Await(t, 10*time.Second, "refusals", func() bool {
		d, err := few.Take(t.Context(), limit.Request{})
		if err == nil {
			requests = append(requests, taken{at: l.now(), mode: d.Mode, few: true, allowed: d.Allowed})
		}
		if err == nil && !d.Allowed {
			refused++
		}
		return refused == 3
	})
	m := summarize(requests, began, ended)
	for _, r := range l.slept {
		if r.at > began && r.at < ended {
			m.control = max(m.control, r.took)
		}
	}
	// What Redis has counted, read through a limiter without the proxy.
	direct := limit.New(redisstore.New(b.admin, &redisstore.Options{Timeout: time.Minute}), nil)
	d := must.Get(bind(direct, loadRules).Peek(t.Context(), limit.Request{Keys: map[string]string{"user": "none"}}))(t)
	m.counted = int(counterLimit - slices.Collect(d.Rules())[1].Remaining)

	m.repeated = int(operate.ReadStats(b.limiter).Repeated)
	modes := make(map[core.Mode]int) // of the few that were admitted
	for _, r := range requests {
		if r.few && r.allowed {
			modes[r.mode]++
		}
	}
	left := must.Get(bind(direct, fewRules).Peek(t.Context(), limit.Request{}))(t)
	t.Logf("of the few, %v were admitted, and Redis has %d left; %d repeated", modes, slices.Collect(left.Rules())[0].Remaining, m.repeated)
	f.check(t, m)
	lost := max(0, m.decided-m.counted)
	return fmt.Sprintf("| %s | %s | %v | %v | %+d | %d | %d | %v |", f.name, m.modesText(),
		round(m.p99), round(m.most), m.admitted-fewLimit, max(0, m.counted-m.asked), lost, round(back)), m.control
}

// check checks what must hold on any machine: no time.
func (f *fault) check(t *testing.T, m measured) {
	// A machine that is paused for longer than the timeout makes some decisions local.
	others := m.during - m.failed - m.modes[core.ModeExact] - m.modes[core.ModeRemembered] - m.modes[core.ModeLocal]
	assert.LessOrEqual(t, others, 0, "a mode that no rule allows: %v", m.modes)
	assert.Positive(t, m.modes[f.mode], "%v", m.modes)
	if !f.failing {
		assert.Zero(t, m.failed, "failed requests")
	}
	// A request whose call was not answered may count twice: of each caller, the one in flight
	// when Redis fell silent, and each that waited for a whole timeout, as any may on a machine
	// that is paused. The units of a payment that was not answered may count again, each time
	// that it is made.
	most := m.asked + callers + m.unanswered
	if f.mute {
		most += m.modes[core.ModeLocal]
	}
	if f.mute || m.unanswered > 0 {
		most += 2 * m.repeated
	}
	assert.LessOrEqual(t, m.counted, most, "requests that count twice")
	if f.forgets {
		assert.LessOrEqual(t, m.admitted, 2*fewLimit, "at most one more limit")
	} else {
		assert.LessOrEqual(t, m.admitted, fewLimit+f.over, "the limit holds")
	}
}

// round rounds a duration to what is above the noise.
func round(d time.Duration) time.Duration {
	switch {
	case d >= 10*time.Millisecond:
		return d.Round(time.Millisecond)
	case d >= time.Millisecond:
		return d.Round(100 * time.Microsecond)
	}
	return d.Round(10 * time.Microsecond)
}

const (
	beginTable = "<!-- measured: make faults writes from here -->\n"
	endTable   = "<!-- to here -->\n"
)

// writeTable replaces the measured part of a document.
func writeTable(t *testing.T, path string, rows []string, delay time.Duration) {
	text := must.Get(os.ReadFile(filepath.FromSlash(path)))(t)
	head, rest, found := strings.Cut(string(text), beginTable)
	_, tail, ended := strings.Cut(rest, endTable)
	require.True(t, found && ended, "%s has no marks for the table", path)
	load, _ := os.ReadFile("/proc/loadavg")
	if fields := strings.Fields(string(load)); len(fields) > 0 {
		load = []byte(fields[0])
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%s%s\n%s, %d cores, load average %s at the end, at most %v of scheduling delay, %s.\n\n", head, beginTable,
		time.Now().UTC().Format("2006-01-02"), runtime.NumCPU(), load, round(delay), runtime.Version())
	out.WriteString("| fault | decisions during the fault | added p99 | added max | above the limit | counted twice | lost by Redis | exact again after |\n" +
		"| --- | --- | --- | --- | --- | --- | --- | --- |\n")
	out.WriteString(strings.Join(rows, "\n") + "\n\n" + endTable + tail)
	require.NoError(t, os.WriteFile(path, []byte(out.String()), 0o644))
}
