package proof

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/redistest"
)

const (
	callers = 16
	timeout = 100 * time.Millisecond // of a call of the store, unless its options say another one
)

// A workload is 16 callers that each make about 250 requests a second. Every eighth
// request is of the policy "few".
type workload struct {
	start time.Time
	stop  chan struct{}
	done  sync.WaitGroup
	of    [callers][]taken
	mu    sync.Mutex
	last  time.Duration // when the newest decision by the store began
	ended bool
	slept []taken // by control
}

// A taken request has its outcome.
type taken struct {
	at, took     time.Duration // since the beginning
	mode         core.Mode
	failed       bool
	few, allowed bool
}

func startWorkload(limiter *limit.Limiter) *workload {
	few, load := bind(limiter, fewRules), bind(limiter, loadRules)
	l := &workload{start: time.Now(), stop: make(chan struct{})}
	for caller := range l.of {
		l.done.Go(func() {
			tick := time.NewTicker(4 * time.Millisecond)
			defer tick.Stop()
			keys := map[string]string{"user": fmt.Sprint(caller % 4)}
			for i := 0; ; i++ {
				policy := load
				if i%8 == 0 {
					policy = few
				}
				at := l.now()
				d, err := policy.Take(context.Background(), limit.Request{Keys: keys})
				l.of[caller] = append(l.of[caller], taken{at, l.now() - at, d.Mode, err != nil, i%8 == 0, d.Allowed})
				if err == nil && d.Mode == core.ModeExact {
					l.mu.Lock()
					l.last = max(l.last, at)
					l.mu.Unlock()
				}
				select {
				case <-l.stop:
					return
				case <-tick.C:
				}
			}
		})
	}
	l.done.Go(l.control)
	return l
}

// control sleeps a millisecond at a time, and records by how much it overslept: the
// machine added as much to everything.
func (l *workload) control() {
	for {
		select {
		case <-l.stop:
			return
		default:
		}
		at := l.now()
		time.Sleep(time.Millisecond)
		l.slept = append(l.slept, taken{at: at, took: l.now() - at - time.Millisecond})
	}
}

func (l *workload) now() time.Duration { return time.Since(l.start) }

// exactAfter waits for a decision by the store that began after a time, and returns
// how long that took.
func (l *workload) exactAfter(t *testing.T, at time.Duration) time.Duration {
	redistest.Await(t, 20*time.Second, "the store decides again", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.last > at
	})
	return l.now() - at
}

func (l *workload) end() {
	if !l.ended {
		l.ended = true
		close(l.stop)
	}
	l.done.Wait()
}

// A measured fault has its effects on requests.
type measured struct {
	control                 time.Duration     // the most that the machine added while it lasted
	modes                   map[core.Mode]int // of decisions while it lasted
	during, failed          int               // requests while it lasted, and failed ones at any time
	p99, most               time.Duration     // added while it lasted, to the median before
	admitted                int               // of the few
	unanswered              int               // requests decided without the store after a whole timeout, at any time
	repeated                int               // units paid after a payment had failed
	asked, decided, counted int               // of the rule that counts: requests, admissions by the store, units in Redis
}

func summarize(requests []taken, began, ended time.Duration) measured {
	m := measured{modes: make(map[core.Mode]int)}
	var before, while []time.Duration
	for _, r := range requests {
		if r.failed {
			m.failed++
		}
		if r.mode == core.ModeLocal && r.took >= timeout {
			m.unanswered++
		}
		switch {
		case r.few && r.allowed:
			m.admitted++
		case !r.few:
			m.asked++
			if r.allowed && r.mode == core.ModeExact {
				m.decided++
			}
		}
		switch {
		case r.at+r.took < began:
			before = append(before, r.took)
		case r.at > began && r.at < ended:
			while = append(while, r.took)
			if !r.failed {
				m.modes[r.mode]++
			}
		}
	}
	m.during = len(while)
	if len(while) == 0 {
		return m
	}
	var usual time.Duration
	if len(before) > 0 {
		slices.Sort(before)
		usual = before[len(before)/2]
	}
	slices.Sort(while)
	m.p99, m.most = max(0, while[len(while)*99/100]-usual), max(0, while[len(while)-1]-usual)
	return m
}

func (m *measured) modesText() string {
	var parts []string
	for mode := range m.modes {
		parts = append(parts, fmt.Sprintf("%v %.0f%%", mode, 100*float64(m.modes[mode])/float64(max(1, m.during))))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}
