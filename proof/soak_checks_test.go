package proof

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The difference between two clocks of one machine: that of Redis, and that of a
// process, which ignores corrections.
const clocks = 20 * time.Millisecond

// settled is how long after the last trouble the limit itself must hold again. Until
// then, what was admitted without the store still counts in a window.
const settled = 3 * soakWindow

// troubles are the times at which the store did not answer correctly.
type troubles struct {
	mu     sync.Mutex
	recent []span
}

type span struct{ from, to time.Time }

func (s *troubles) mark(from, to time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.recent); n > 0 && from.Sub(s.recent[n-1].to) < soakWindow/10 && !from.Before(s.recent[n-1].from) {
		if to.After(s.recent[n-1].to) {
			s.recent[n-1].to = to
		}
		return
	}
	s.recent = slices.DeleteFunc(s.recent, func(old span) bool { return from.Sub(old.to) > time.Minute })
	s.recent = append(s.recent, span{from, to})
}

// begin marks a trouble that lasts until the returned function is called.
func (s *troubles) begin(from time.Time) (end func(time.Time)) {
	s.mark(from, from.Add(time.Hour))
	return func(to time.Time) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for i := range s.recent {
			if s.recent[i].to.After(to) {
				s.recent[i].to = to
			}
		}
	}
}

// none reports whether there was no trouble during a time and for a while before.
func (s *troubles) none(from, to time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.recent {
		if t.from.Before(to) && t.to.After(from.Add(-settled)) {
			return false
		}
	}
	return true
}

// bounds are the most in a window: while the store answers, and at any time.
type bounds struct{ quiet, any int }

// A tally records admissions, and has the bounds to compare them with.
type tally struct {
	name             string
	steady, changing bounds // changing: while the rule has two versions

	mu           sync.Mutex
	times        []time.Time
	most         [2]bounds // of steady and changing
	quietWindows [2]int
}

func (a *tally) add(at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.times = append(a.times, at)
}

// check checks the windows that are over. It returns what is wrong.
func (a *tally) check(trouble, changes *troubles, now time.Time) (wrong string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	slices.SortFunc(a.times, time.Time.Compare)
	over := 0
	for first, from := range a.times {
		to := from.Add(soakWindow - clocks)
		if now.Sub(to) < soakWindow {
			break
		}
		over = first + 1
		n := 0
		for _, at := range a.times[first:] {
			if !at.Before(to) {
				break
			}
			n++
		}
		of, most := a.steady, &a.most[0]
		if !changes.none(from, to) {
			of, most = a.changing, &a.most[1]
		}
		most.any = max(most.any, n)
		if n > of.any {
			wrong = fmt.Sprintf("%s: %d in the window from %v: at most %d", a.name, n, from, of.any)
		}
		if trouble.none(from, to) {
			if most.quiet = max(most.quiet, n); most == &a.most[0] {
				a.quietWindows[0]++
			} else {
				a.quietWindows[1]++
			}
			if n > of.quiet {
				wrong = fmt.Sprintf("%s: %d in the window from %v, while the store answered: at most %d", a.name, n, from, of.quiet)
			}
		}
	}
	a.times = slices.Delete(a.times, 0, over)
	return wrong
}

// A peak is the most leases that were held at the same time.
type peak struct {
	mu                       sync.Mutex
	held, mostQuiet, mostAny int
}

func (p *peak) add(n int, trouble *troubles) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held += n
	p.mostAny = max(p.mostAny, p.held)
	if now := time.Now(); trouble.none(now, now) {
		p.mostQuiet = max(p.mostQuiet, p.held)
	}
}

// A usage is the memory of the process and of Redis over time.
type usage struct {
	goroutines, heap, files, keys []int
}

// watch checks once a second, and logs once a minute.
func (s *soak) watch(duration time.Duration, watched chan<- usage) {
	every := max(2*time.Second, min(time.Minute, duration/8))
	var use usage
	var least [2]int // of goroutines and files, which calls in flight add to
	most := 0
	next := time.Now().Add(every)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-s.stop:
			watched <- use
			return
		case <-tick.C:
		}
		for _, tally := range s.tallies() {
			if wrong := tally.check(&s.trouble, &s.changes, time.Now()); wrong != "" {
				s.t.Error(wrong)
			}
		}
		s.held.mu.Lock()
		if s.held.mostQuiet > soakSlots || s.held.mostAny > 2*soakSlots {
			s.t.Errorf("%d held at the same time, %d while the store answered", s.held.mostAny, s.held.mostQuiet)
		}
		s.held.mu.Unlock()
		for i, n := range []int{runtime.NumGoroutine(), files()} {
			if least[i] == 0 || n < least[i] {
				least[i] = n
			}
		}
		most = max(most, s.keys())
		if time.Now().Before(next) {
			continue
		}
		next = time.Now().Add(every)
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		use.goroutines, use.files = append(use.goroutines, least[0]), append(use.files, least[1])
		use.heap, use.keys = append(use.heap, int(m.HeapAlloc)), append(use.keys, most)
		fmt.Printf("soak %s %s; %d goroutines, heap %.1f MB, %d files, %d keys\n", time.Now().Format(time.TimeOnly),
			s.tell(), least[0], float64(m.HeapAlloc)/1e6, least[1], most)
		least, most = [2]int{}, 0
	}
}

func files() int {
	entries, _ := os.ReadDir("/proc/self/fd")
	return len(entries)
}

// keys returns the number of keys in Redis, and asserts that all of them expire. It
// returns 0 if the server does not answer.
func (s *soak) keys() (n int) {
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	scan := s.direct.Scan(ctx, 0, "", 1000).Iterator()
	for scan.Next(ctx) {
		n++
		ttl, err := s.direct.PTTL(ctx, scan.Val()).Result()
		if err == nil && ttl == -1 {
			s.t.Errorf("%q never expires", scan.Val())
		}
	}
	if scan.Err() != nil {
		return 0
	}
	return n
}

// check asserts that nothing grows: apart from the warm-up, the later half is not above
// the earlier one by more than chance.
func (u *usage) check(t *testing.T) {
	for _, of := range []struct {
		name   string
		all    []int
		chance int
	}{
		{"goroutines", u.goroutines, 8}, {"bytes of heap", u.heap, 3_000_000}, {"files", u.files, 12}, {"keys", u.keys, 300},
	} {
		require.GreaterOrEqual(t, len(of.all), 4, "too few samples")
		warm := of.all[len(of.all)/4:]
		before, after := warm[:len(warm)/2], warm[len(warm)/2:]
		t.Logf("%s: %v", of.name, of.all)
		require.LessOrEqual(t, slices.Min(after), slices.Max(before)+of.chance, "%s grow", of.name)
	}
}

// TestSoakCanFail gives the checks what they have to find.
func TestSoakCanFail(t *testing.T) {
	now := time.Now()
	var trouble, changes troubles
	a := tally{name: "a", steady: bounds{2, 3}, changing: bounds{4, 5}}
	fill := func(n int) {
		for i := range n {
			a.add(now.Add(-10*soakWindow + time.Duration(i)*time.Millisecond))
		}
	}
	fill(2)
	require.Empty(t, a.check(&trouble, &changes, now))
	fill(3)
	require.Contains(t, a.check(&trouble, &changes, now), "while the store answered")
	end := trouble.begin(now.Add(-12 * soakWindow))
	fill(3)
	require.Empty(t, a.check(&trouble, &changes, now))
	end(now.Add(-11 * soakWindow))
	fill(3)
	require.Empty(t, a.check(&trouble, &changes, now), "it has just ended")
	fill(4)
	require.Contains(t, a.check(&trouble, &changes, now), "at most 3")
	changes.mark(now.Add(-11*soakWindow), now)
	fill(5)
	require.Empty(t, a.check(&trouble, &changes, now), "its rule was changing")
	fill(6)
	require.Contains(t, a.check(&trouble, &changes, now), "at most 5")
}
