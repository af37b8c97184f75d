package proof

import (
	"context"
	"encoding/gob"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/internal/routetest"
	"github.com/routelimit/limit/stores/memstore"
	"github.com/routelimit/limit/stores/redisstore"
	"github.com/routelimit/limit/stores/refusals"
)

// A windowRow is rules, or two versions of them, the second of which is the tighter one. The
// first process has the first version, the second one the second, and so on.
type windowRow struct {
	name string
	keys int
	text []string // of each version
}

var windowRows = []windowRow{
	{"log", 3, []string{"r: 20/300ms per user"}},
	{"ring", 4, []string{"r: 1000/500ms per user"}},
	{"ring of a second", 4, []string{"r: 300/1s per user"}},
	{"cells", 2, []string{"r: 200/400ms per user sliding-cells"}},
	{"counter", 2, []string{"r: 60/300ms per user sliding-counter"}},
	{"window", 2, []string{"r: 30/300ms per user fixed-window"}},
	{"aligned window", 2, []string{"r: 30/300ms per user fixed-window aligned"}},
	{"token bucket", 2, []string{"r: 60/1s per user token-bucket burst 25"}},
	{"empty bucket", 2, []string{"r: 60/1s per user token-bucket burst 25 empty"}},
	{"leaky bucket", 2, []string{"r: 60/1s per user leaky-bucket burst 25"}},
	{"queue", 2, []string{"r: 40/1s per user queue burst 12 wait 200ms"}},
	{"concurrency", 2, []string{"r: 4/1s per user concurrency"}},
	{"distinct", 3, []string{"r: 6/300ms per user distinct header v"}},
	{"ban", 3, []string{"r: 5/200ms per user; b: 3/600ms per user ban 300ms"}},
	{"stack", 3, []string{"r: 20/300ms per user; all: 30/200ms global"}},

	{"logs of two limits", 2, []string{"r: 30/500ms per user", "r: 20/500ms per user"}},
	{"logs of two windows", 2, []string{"r: 30/1s per user", "r: 3/100ms per user"}},
	{"rings of two limits", 2, []string{"r: 1000/500ms per user", "r: 900/500ms per user"}},
	{"rings of two windows", 2, []string{"r: 1000/1s per user", "r: 300/300ms per user"}},
	{"a ring and a log", 2, []string{"r: 1000/1s per user", "r: 30/100ms per user"}},
	{"cells of two lengths", 2, []string{"r: 50/1s per user sliding-cells", "r: 25/500ms per user sliding-cells"}},
	{"cells of two numbers", 2, []string{"r: 50/500ms per user sliding-cells cells 15", "r: 50/500ms per user sliding-cells cells 2"}},
	{"counters of two limits", 2, []string{"r: 60/300ms per user sliding-counter", "r: 40/300ms per user sliding-counter"}},
	{"counters of two windows", 2, []string{"r: 60/300ms per user sliding-counter", "r: 40/200ms per user sliding-counter"}},
	{"windows of two lengths", 2, []string{"r: 60/300ms per user fixed-window", "r: 40/200ms per user fixed-window"}},
	{"aligned windows of two lengths", 2, []string{"r: 60/300ms per user fixed-window aligned", "r: 40/200ms per user fixed-window aligned"}},
	{"buckets of two bursts", 2, []string{"r: 20/1s per user token-bucket burst 40", "r: 20/1s per user token-bucket burst 1"}},
	{"buckets of two rates", 2, []string{"r: 60/1s per user token-bucket burst 20", "r: 20/1s per user token-bucket burst 20"}},
	{"leaky buckets of two bursts", 2, []string{"r: 20/1s per user leaky-bucket burst 40", "r: 20/1s per user leaky-bucket burst 1"}},
	{"queues of two bursts", 2, []string{"r: 20/1s per user queue burst 30", "r: 20/1s per user queue burst 1"}},
	{"slots of two limits", 2, []string{"r: 6/1s per user concurrency", "r: 3/1s per user concurrency"}},
	{"distinct in two windows", 2, []string{"r: 8/400ms per user distinct header v", "r: 4/150ms per user distinct header v"}},
	{"bans of two windows", 3, []string{"r: 5/200ms per user; b: 6/1s per user ban 300ms", "r: 5/200ms per user; b: 50/20ms per user ban 300ms"}},
}

// An attempt is a request, as the process that made it reports it. Times are in µs.
type attempt struct {
	Row, Key, Version int
	Cost              int64
	Value             int  // that it shows to a rule of distinct values
	Allowed, Barred   bool // Barred: by a ban, maybe from now on
	Mode              core.Mode
	At, Slot          int64 // by the clock of the store: when it was decided, and when it may go on
	Began, Holds      int64 // by the clock of the machine: before and after the call
	Ends, Free        int64 // likewise, of the release
}

// rules returns the rules of each version.
func (r *windowRow) rules() (versions [][]limit.Rule) {
	for _, text := range r.text {
		versions = append(versions, limit.MustParse(text).Rules())
	}
	return versions
}

// longest returns the longest window of a row.
func (r *windowRow) longest() (window time.Duration) {
	for _, version := range r.rules() {
		window = max(window, version[0].Window)
	}
	return window
}

// A driver is a process, or a part of one, that makes requests to all rows.
type driver struct {
	number int // of the process
	begins time.Time
	length time.Duration

	mu       sync.Mutex
	attempts []attempt
	wait     sync.WaitGroup
}

const processes = 3

func (w *driver) run(store core.Store) []attempt {
	silent := slog.New(slog.DiscardHandler) // a busy machine may renew a lease too late
	limiter := limit.New(store, &limit.Options{Log: silent})
	for i, r := range windowRows {
		versions := r.rules()
		version := w.number % len(versions)
		policy := bind(limiter, limit.Named("row"+strconv.Itoa(i), versions[version]...))
		for key := range r.keys {
			w.wait.Go(func() { w.follow(policy, versions[0][0], r.longest(), attempt{Row: i, Key: key, Version: version}) })
		}
	}
	w.wait.Wait()
	return w.attempts
}

// follow makes the requests to one key: bursts, and pauses around a part of a window, one
// window and two. All processes have the same schedule, so that keys do expire meanwhile.
func (w *driver) follow(policy *limit.Policy, rule limit.Rule, window time.Duration, of attempt) {
	schedule := rand.New(rand.NewPCG(uint64(w.begins.UnixMicro()), uint64(of.Row*100+of.Key)))
	own := rand.New(rand.NewPCG(uint64(w.number), schedule.Uint64()))
	around := func(d time.Duration) time.Duration {
		return d + time.Duration(schedule.IntN(6000)-3000)*time.Microsecond
	}
	first := time.Duration(schedule.Int64N(int64(time.Second)))
	for at := first; at < w.length && time.Since(w.begins) < w.length; {
		n, callers := 1+min(20, int(schedule.ExpFloat64()*4)), 1
		if at == first || schedule.IntN(25) == 0 {
			n, callers = 10, 4
		}
		time.Sleep(at - time.Since(w.begins))
		var burst sync.WaitGroup
		for range callers {
			random := rand.New(rand.NewPCG(own.Uint64(), 1))
			burst.Go(func() {
				for i := 0; i < n && (at == first || time.Since(w.begins) < w.length); i++ {
					w.take(policy, rule, of, random)
				}
			})
		}
		burst.Wait()
		switch schedule.IntN(10) {
		default:
			at += time.Duration((0.02 + 0.33*schedule.Float64()) * float64(window))
		case 4, 5:
			at += around(window)
		case 6, 7:
			at += time.Duration((0.5 + schedule.Float64()) * float64(window))
		case 8:
			at += around(2 * window)
		case 9:
			at += time.Duration((2 + schedule.Float64()) * float64(window))
		}
	}
}

// take makes one request.
func (w *driver) take(policy *limit.Policy, rule limit.Rule, a attempt, random *rand.Rand) {
	a.Cost = 1
	switch rule.Algorithm.(type) {
	case limit.Concurrency, limit.Distinct:
	default:
		a.Cost += random.Int64N(max(1, rule.Limit/8))
	}
	a.Value = int(random.ExpFloat64() * 5) // some are shown so often that they stay
	a.Began = time.Now().UnixMicro()
	d, err := policy.Take(context.Background(), limit.Request{Cost: a.Cost, Keys: map[string]string{
		"user": strconv.Itoa(a.Key), "header v": strconv.Itoa(a.Value)}})
	if err != nil {
		panic(err)
	}
	a.Holds = time.Now().UnixMicro()
	a.Allowed, a.Mode, a.At = d.Allowed, d.Mode, d.At.UnixMicro()
	a.Slot = d.At.Add(d.Delay).UnixMicro()
	a.Barred = slices.Contains(routetest.Refused(d), "b")
	report := func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.attempts = append(w.attempts, a)
	}
	if _, holds := rule.Algorithm.(limit.Concurrency); !holds || !d.Allowed {
		report()
		return
	}
	lasts := time.Duration(random.Int64N(60_000)) * time.Microsecond
	w.wait.Go(func() {
		time.Sleep(lasts)
		a.Ends = time.Now().UnixMicro()
		d.Release()
		a.Free = time.Now().UnixMicro()
		report()
	})
}

const driverVar = "LIMIT_PROOF_DRIVER" // the URL of Redis, and the number, the begin (µs) and the length (ns) of a process

// drive is the main function of a process.
func drive(args string) {
	w := driver{}
	var url string
	var begins int64
	if _, err := fmt.Sscan(args, &url, &w.number, &begins, &w.length); err != nil {
		panic(err)
	}
	w.begins = time.UnixMicro(begins)
	options, err := redis.ParseURL(url)
	if err != nil {
		panic(err)
	}
	store := redisstore.New(redis.NewClient(options), &redisstore.Options{Timeout: time.Minute})
	attempts := w.run(refusals.New(store)) // without a guard: only Redis decides, however busy the machine is
	if err := gob.NewEncoder(os.Stdout).Encode(attempts); err != nil {
		panic(err)
	}
	os.Exit(0)
}

// proofTime is the duration of a load: LIMIT_PROOF_SECONDS, or the usual one.
func proofTime(usual time.Duration) time.Duration {
	if n, err := strconv.Atoi(os.Getenv("LIMIT_PROOF_SECONDS")); err == nil {
		return time.Duration(n) * time.Second
	}
	return usual
}

// TestAnyWindow has several processes on one Redis, and callers of one memory store, make
// requests to all rows in bursts and pauses in which keys expire. It compares each decision
// with the definition of the algorithm, by the clock of the store: what is admitted fits,
// and what is refused does not.
func TestAnyWindow(t *testing.T) {
	client := redistest.Client(t)
	begins, length := time.Now().Add(time.Second), proofTime(6*time.Second)
	var redisAttempts, memoryAttempts [processes][]attempt
	memory := memstore.New(nil)
	var done sync.WaitGroup
	for p := range processes {
		done.Go(func() {
			w := driver{number: p, begins: begins, length: length}
			memoryAttempts[p] = w.run(memory)
		})
		done.Go(func() {
			worker := exec.Command(os.Args[0])
			worker.Env = append(os.Environ(), fmt.Sprintf("%s=redis://%s/%d %d %d %d", driverVar,
				client.Options().Addr, client.Options().DB, p, begins.UnixMicro(), length))
			worker.Stderr = os.Stderr
			out, err := worker.StdoutPipe()
			if assert.NoError(t, err) && assert.NoError(t, worker.Start()) {
				assert.NoError(t, gob.NewDecoder(out).Decode(&redisAttempts[p]))
				assert.NoError(t, worker.Wait())
			}
		})
	}
	done.Wait()
	reached := 0
	for store, attempts := range map[string][][]attempt{"redis": redisAttempts[:], "memory": memoryAttempts[:]} {
		of := make([][]attempt, len(windowRows))
		for _, a := range slices.Concat(attempts...) {
			of[a.Row] = append(of[a.Row], a)
		}
		for i, r := range windowRows {
			t.Run(store+"/"+strings.ReplaceAll(r.name, " ", "-"), func(t *testing.T) {
				wrong, full := r.check(t, of[i])
				if full {
					reached++
				}
				require.Empty(t, wrong)
			})
		}
	}
	require.Greater(t, reached, len(windowRows), "most limits are reached")
}
