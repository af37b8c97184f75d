// Package bench measures how many decisions a second a Redis makes, how long they take,
// and what keeps it from more. It decides with the library, as a program does, under a
// prefix of its own, and deletes its keys.
package bench

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/redis/go-redis/v9"
)

// Options say what is measured.
type Options struct {
	Policies []Policy      // that decide, in turn; at least one
	Time     time.Duration // of all runs
	Clients  int           // different ones that send requests
	Callers  []int         // that decide at once, a run for each; nil climbs until the throughput stops growing
	Timeout  time.Duration // redisstore.Options.Timeout
	Spread   int           // redisstore.Options.Spread
	Progress io.Writer     // gets a line before each run; nil for none
}

// A Result is what was measured.
type Result struct {
	Server    Server   `json:"server"`
	Policies  []Policy `json:"policies"`
	Clients   int      `json:"clients"`
	RoundTrip Micros   `json:"round_trip_us"` // p50 of PING, with one caller
	Runs      []Run    `json:"runs"`
	Verdict
	Notes       []string `json:"notes,omitempty"`
	Interrupted bool     `json:"interrupted,omitempty"`
}

// ladder is how many callers decide at once, until the throughput grows by less than
// growth.
var ladder = []int{1, 4, 16, 64, 256}

const growth = 1.10

// Measure measures a Redis. The client is that of a program; admin is used beside it.
// If ctx ends, the result has the runs that were completed. Whatever happens, Measure
// deletes its keys, and the error says so if it could not.
func Measure(ctx context.Context, client, admin redis.UniversalClient, o Options) (result *Result, err error) {
	prefix := newPrefix()
	s := &server{admin: admin, prefix: prefix}
	result = &Result{Policies: o.Policies, Clients: o.Clients}
	if err := s.ready(ctx); err != nil {
		return result.stopped(ctx, err)
	}
	defer func() {
		if problem := s.clean(ctx); problem != nil {
			err = errors.Join(err, problem)
		}
	}()
	load, err := newLoad(ctx, client, prefix, &o, o.Clients)
	if err != nil {
		return result.stopped(ctx, err)
	}
	result.Server = Describe(ctx, admin)
	callers, each := o.Callers, o.Time/time.Duration(len(o.Callers)+1)
	if callers == nil {
		callers, each = ladder, o.Time/time.Duration(len(ladder)+1)
	}
	say := func(format string, args ...any) {
		if o.Progress != nil {
			fmt.Fprintf(o.Progress, format, args...)
		}
	}
	say("round trips…\n")
	trip := min(each/10, time.Second)
	result.RoundTrip = Micros(s.roundTrip(ctx, load.key, trip/2))
	each -= trip / time.Duration(len(callers)+1)
	for i, n := range callers {
		say("%d at once…\n", n)
		run, err := load.run(ctx, s, n, each)
		if err != nil {
			return result.stopped(ctx, err)
		}
		result.Runs = append(result.Runs, run)
		if i == 0 { // again, since the machine may have been busier before
			if again := s.roundTrip(ctx, load.key, trip/2); again > 0 {
				result.RoundTrip = min(result.RoundTrip, Micros(again))
			}
		}
		if o.Callers == nil && i >= 2 && result.flat() {
			break
		}
	}
	best := result.best()
	say("%d at once for one client…\n", best.Callers)
	if load, err = newLoad(ctx, client, prefix+"-hot", &o, 1); err != nil {
		return result.stopped(ctx, err)
	}
	hot, err := load.run(ctx, s, best.Callers, each)
	if err != nil {
		return result.stopped(ctx, err)
	}
	hot.Hot = true
	result.Runs = append(result.Runs, hot)
	result.judge(o.Callers == nil)
	return result, nil
}

// flat reports whether neither of the last two runs was faster than all before them by
// growth. One run may be slow by chance.
func (r *Result) flat() bool {
	before, last := r.Runs[:len(r.Runs)-2], r.Runs[len(r.Runs)-2:]
	fastest := 0.0
	for _, run := range before {
		fastest = max(fastest, run.PerSecond)
	}
	return max(last[0].PerSecond, last[1].PerSecond) < growth*fastest
}

// stopped returns what was measured until an error. An interruption keeps the runs that
// were completed.
func (r *Result) stopped(ctx context.Context, err error) (*Result, error) {
	if ctx.Err() == nil {
		return nil, err
	}
	if len(r.Runs) == 0 {
		return nil, errInterrupted
	}
	r.Interrupted = true
	r.judge(false)
	return r, errInterrupted
}

var errInterrupted = errors.New("interrupted")

// best returns the run with the highest throughput, of those with many clients.
func (r *Result) best() *Run {
	var best *Run
	for i := range r.Runs {
		if run := &r.Runs[i]; !run.Hot && (best == nil || run.PerSecond > best.PerSecond) {
			best = run
		}
	}
	return best
}

// newPrefix returns a prefix that no other program uses.
func newPrefix() string {
	var random [8]byte
	rand.Read(random[:]) // never fails
	return "limit-bench-" + hex.EncodeToString(random[:])
}
