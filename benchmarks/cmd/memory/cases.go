package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A benchCase is a load. Two rules are the quota for each key and another one that
// all keys share.
type benchCase struct {
	name      string
	keys      int
	each, all quota
}

// ample is more than two cores can use up, and spent is used up at once.
var (
	ample = quota{20_000, time.Millisecond}
	spent = quota{1, time.Hour}
)

var cases = []benchCase{
	{"hot key, admitted", 1, ample, ample},
	{"hot key, refused", 1, spent, ample},
	{"1,000 keys, admitted", 1_000, ample, ample},
	{"1,000 keys, refused", 1_000, spent, ample},
	{"1,000,000 keys, admitted", 1_000_000, quota{100, time.Minute}, ample},
}

// A cell is what one contender did in one round.
type cell struct {
	ns       float64 // wall time of a decision: of two callers, each decision takes twice as long
	allocs   float64
	admitted float64
}

// A series is the cells of one contender with one or two rules.
type series struct {
	contender string
	rules     int
	cells     []cell
	bytes     float64 // of a key, before the rounds
}

// measure runs all contenders, round by round.
func (o options) measure(c benchCase, named *regexp.Regexp) []*series {
	stored, asked := addresses(c.keys), addresses(c.keys)
	var all []*series
	var callers []caller
	for _, contender := range contenders {
		if contender.hot && c.keys > 1 || !named.MatchString(contender.name) {
			continue
		}
		for rules := 1; rules <= 2; rules++ {
			second := &c.all
			if rules == 1 {
				second = nil
			}
			s := &series{contender: contender.name, rules: rules}
			var decide caller
			s.bytes = growth(func() {
				decide = contender.decide(c.each, second, c.keys)
				one := decide()
				for _, key := range stored {
					one(strings.Clone(key)) // a server has a string of its own for each request
				}
			}) / float64(c.keys)
			all, callers = append(all, s), append(callers, decide)
		}
	}
	for round := range o.rounds {
		fmt.Fprintf(os.Stderr, "%s: round %d of %d\n", c.name, round+1, o.rounds)
		for i, s := range all {
			s.cells = append(s.cells, o.cell(callers[i], asked))
		}
	}
	return all
}

// growth returns by how many bytes f makes the heap grow.
func growth(f func()) float64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	f()
	runtime.GC()
	runtime.ReadMemStats(&after)
	return float64(after.HeapAlloc) - float64(before.HeapAlloc)
}

// cell lets all callers decide for a while. Each goes through the keys in turn, from
// a random one on.
func (o options) cell(decide caller, keys []string) cell {
	var mu sync.Mutex
	var all sync.WaitGroup
	decisions, admitted := 0, 0
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begin := time.Now()
	for range o.callers {
		all.Go(func() {
			one := decide()
			n, ok, at := 0, 0, rand.IntN(len(keys))
			for time.Since(begin) < o.lasts {
				for range 256 { // so that the clock costs nothing
					if one(keys[at]) {
						ok++
					}
					if at++; at == len(keys) {
						at = 0
					}
				}
				n += 256
			}
			mu.Lock()
			defer mu.Unlock()
			decisions, admitted = decisions+n, admitted+ok
		})
	}
	all.Wait()
	took := time.Since(begin)
	runtime.ReadMemStats(&after)
	n := float64(decisions)
	return cell{
		ns:       float64(took.Nanoseconds()) / n,
		allocs:   float64(after.Mallocs-before.Mallocs) / n,
		admitted: float64(admitted) / n,
	}
}

// addresses returns n different keys in an order in which neighbors have nothing in
// common, so that no contender profits from the order in which keys were stored.
func addresses(n int) []string {
	keys := make([]string, n)
	for i, a := range rand.New(rand.NewPCG(1, 1)).Perm(n) {
		keys[i] = "10." + strconv.Itoa(a>>16) + "." + strconv.Itoa(a>>8&255) + "." + strconv.Itoa(a&255)
	}
	return keys
}
