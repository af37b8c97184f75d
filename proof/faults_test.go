package proof

import (
	"context"
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
	"github.com/routelimit/limit/internal/faultproxy"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/redisstore"
)

// A stand is the whole thing as users have it, in two lines and with the
// defaults of go-redis, on a Redis behind a proxy that breaks it.
type stand struct {
	t       *testing.T
	server  *redistest.Server
	proxy   *faultproxy.Proxy
	admin   *redis.Client // of the server itself
	client  redis.UniversalClient
	limiter *limit.Limiter
	clock   *os.File // what its clock is set by, if it can be
}

// A fault is one of those that a limiter on Redis meets.
type fault struct {
	number string // in the catalogue that docs/faults.md names
	name   string
	quick  bool                               // whether it is part of every run
	clock  bool                               // whether the clock of the server must move
	args   []string                           // of the server
	client func(*stand) redis.UniversalClient // nil: the defaults
	begin  func(*stand) (end func())

	mode    limit.Mode // of decisions while it lasts
	failing bool       // whether requests may fail: an error that a client could cause
	forgets bool       // whether the store forgets without failing, so that a limit begins anew
}

var (
	fewLimit     = 500
	fewRules     = limit.Named("few", limit.Global(time.Hour, int64(fewLimit)))
	counterLimit = int64(1_000_000_000)
	loadRules    = limit.Named("load", limit.PerUser(time.Hour, 50_000),
		limit.Rule{Name: "count", Key: limit.Everyone, Limit: counterLimit, Window: time.Hour, Algorithm: limit.FixedWindow})
)

// whole reports whether the whole table is wanted, and not its quick part.
func whole() bool { return os.Getenv("LIMIT_FAULTS") != "" }

// TestFaults produces each fault under load and measures what it costs. With
// LIMIT_FAULTS it produces all, for longer, and writes the table of
// docs/faults.md. What must hold always: the modes, no error, nothing counted
// twice, no admission beyond the limit, and no goroutine left.
func TestFaults(t *testing.T) {
	redistest.Real(t)
	redis.SetLogger(quiet{})
	var rows []string
	for _, f := range faults {
		if !whole() && !f.quick {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			awaitGoroutines(t, runtime.NumGoroutine())
			row := f.measure(t)
			t.Log(row)
			rows = append(rows, row)
		})
	}
	if len(rows) == len(faults) && !t.Failed() {
		writeTable(t, "../docs/faults.md", rows)
	}
}

// awaitGoroutines waits until no more are left than there were, but for two that
// wait on what ends with the test.
func awaitGoroutines(t *testing.T, before int) {
	t.Cleanup(func() { // behind those of the proxy and the servers
		for end := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before+2; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				stacks := make([]byte, 1<<16)
				t.Errorf("goroutines are left:\n%s", stacks[:runtime.Stack(stacks, true)])
				return
			}
		}
	})
}

// quiet keeps go-redis from writing that it cannot dial.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

func (f *fault) measure(t *testing.T) string {
	b := &stand{t: t}
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

	l := startCrowd(b.limiter)
	defer l.end()
	phase := 300 * time.Millisecond
	if whole() {
		phase = time.Second
	}
	time.Sleep(phase) // of load: nothing is waited for
	began := l.now()
	end := f.begin(b)
	time.Sleep(2 * phase)
	ended := l.now()
	end()
	back := l.exactAfter(t, l.now())
	time.Sleep(phase)
	l.end()
	requests := slices.Concat(l.of[:]...)

	// Whatever is left of the few is taken, so that their number can be told.
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
	// What Redis has counted, by a limiter that nothing stands before.
	direct := limit.New(redisstore.New(b.admin, &redisstore.Options{Timeout: time.Minute}), nil)
	d, err := bind(direct, loadRules).Peek(t.Context(), limit.Request{Keys: limit.Keys{"user": "none"}})
	require.NoError(t, err)
	m.counted = int(counterLimit - d.Rules()[1].Remaining)

	f.check(t, m)
	lost := max(0, m.decided-m.counted)
	return fmt.Sprintf("| %s | %s | %s | %v | %v | %v | %d of %d | %+d | %d | %d | %v |", f.number, f.name, m.modesText(),
		round(m.p99), round(m.most), round(m.control), m.failed, m.during, m.admitted-fewLimit, max(0, m.counted-m.asked), lost, round(back))
}

// check checks what must hold on any machine: no time.
func (f *fault) check(t *testing.T, m measured) {
	// A machine that stands still for longer than the timeout makes some local.
	others := m.during - m.failed - m.modes[limit.ModeExact] - m.modes[limit.ModeRemembered] - m.modes[limit.ModeLocal]
	assert.LessOrEqual(t, others, 0, "a mode that no rule asks for: %v", m.modes)
	assert.Positive(t, m.modes[f.mode], "%v", m.modes)
	if !f.failing {
		assert.Zero(t, m.failed, "requests that fail")
	}
	assert.LessOrEqual(t, m.counted, m.asked, "no request counts twice")
	if f.forgets {
		assert.LessOrEqual(t, m.admitted, 2*fewLimit, "the limit, once more")
	} else {
		assert.LessOrEqual(t, m.admitted, fewLimit, "the limit holds")
	}
}

// round keeps of a duration what can be told from noise.
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
func writeTable(t *testing.T, path string, rows []string) {
	text, err := os.ReadFile(filepath.FromSlash(path))
	require.NoError(t, err)
	head, rest, found := strings.Cut(string(text), beginTable)
	_, tail, ended := strings.Cut(rest, endTable)
	require.True(t, found && ended, "%s has no place for the table", path)
	load, _ := os.ReadFile("/proc/loadavg")
	if fields := strings.Fields(string(load)); len(fields) > 0 {
		load = []byte(fields[0])
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%s%s\n%s, %d cores, load average %s at the end, %s.\n\n", head, beginTable,
		time.Now().UTC().Format("2006-01-02"), runtime.NumCPU(), load, runtime.Version())
	out.WriteString("| # | fault | decisions during the fault | added p99 | added max | scheduling delay | failed | above the limit | counted twice | lost by Redis | exact again after |\n" +
		"| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n")
	out.WriteString(strings.Join(rows, "\n") + "\n\n" + endTable + tail)
	require.NoError(t, os.WriteFile(path, []byte(out.String()), 0o644))
}
