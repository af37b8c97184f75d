// Package fuzzloop runs fuzz tests in a plain loop: on random changes of their
// seeds, without the instrumentation of the fuzzer, which costs ten times the
// test where that is small. What it finds is not minimized, and it learns
// nothing from what it has covered.
//
//	func FuzzParse(t *testing.F) {
//		f := fuzzloop.New(t)
//		f.Add("5/2s per ip")
//		f.Fuzz(func(t *testing.T, text string) { … })
//	}
package fuzzloop

import (
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"strconv"
	"testing"
	"time"
)

// Var is the environment variable with the number of loops. Without it, F is
// what it is around.
const Var = "LIMIT_FUZZ_LOOPS"

// An F is a [testing.F] that knows its seeds.
type F struct {
	*testing.F
	seeds [][]any
	loops int
}

// New returns an F around f.
func New(f *testing.F) *F {
	loops, _ := strconv.Atoi(os.Getenv(Var))
	return &F{F: f, loops: loops}
}

// Add adds a seed, as [testing.F.Add] does.
func (f *F) Add(args ...any) {
	f.seeds = append(f.seeds, args)
	f.F.Add(args...)
}

// Fuzz is [testing.F.Fuzz]. With loops it runs body on as many changed seeds
// beside the seeds. Body must not skip.
func (f *F) Fuzz(body any) {
	if f.loops == 0 || len(f.seeds) == 0 {
		f.F.Fuzz(body)
		return
	}
	looped := false
	plain := reflect.ValueOf(body)
	f.F.Fuzz(reflect.MakeFunc(plain.Type(), func(args []reflect.Value) []reflect.Value {
		if !looped {
			looped = true
			f.loop(args[0].Interface().(*testing.T), plain)
		}
		return plain.Call(args)
	}).Interface())
}

// loop runs body until it fails, or often enough.
func (f *F) loop(t *testing.T, body reflect.Value) {
	var seed [2]uint64
	for i := range seed {
		seed[i] = rand.Uint64()
	}
	m := mutator{rand.New(rand.NewPCG(seed[0], seed[1])), f.seeds}
	args := make([]reflect.Value, body.Type().NumIn())
	args[0] = reflect.ValueOf(t)
	ended, began := 0, time.Now()
	defer func() {
		if problem := recover(); problem != nil || t.Failed() || ended < f.loops {
			inputs := ""
			for _, a := range args[1:] {
				inputs += fmt.Sprintf(" %#v", a.Interface())
			}
			t.Fatalf("loop %d: %v: on%s", ended, problem, inputs)
		}
		t.Logf("%d loops, %.0f a second", ended, float64(ended)/time.Since(began).Seconds())
	}()
	for range f.loops {
		for i, like := range f.seeds[m.IntN(len(f.seeds))] {
			args[i+1] = reflect.ValueOf(m.change(like))
		}
		body.Call(args)
		if t.Failed() {
			return
		}
		ended++
	}
}
