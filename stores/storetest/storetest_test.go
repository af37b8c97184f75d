package storetest

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/routelimit/limit/core"
)

// A reference is the simplest store: a lock, a map, and package core.
type reference struct {
	mu      sync.Mutex
	now     int64
	states  map[name]core.State
	quotas  map[name]core.Quota // by which they were charged last
	expires map[name]int64      // by earlier quotas, some of which remember longer
	fault   fault
	returns returnFault
	leaseFault
	last int64    // the latest time decided at
	past []moment // what was admitted
}

type moment struct {
	at      int64
	charges []core.Charge
}

func (s *reference) setTime(micros int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = micros
}

// elapse forgets the keys that are as good as new.
func (s *reference) elapse(int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, state := range s.states {
		if max(s.expires[id], state.Expires())-s.fault.early(s.quotas[id]) <= s.now {
			delete(s.states, id)
			delete(s.expires, id)
		}
	}
}

func (s *reference) Take(_ context.Context, asks []core.Ask) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fault.asks != nil {
		return s.fault.asks(s, asks)
	}
	if err := core.ValidateAsks(asks); err != nil && (s.fault.take == nil || len(asks) != 1) {
		return err
	}
	return s.takeAll(asks)
}

func (s *reference) takeAll(asks []core.Ask) (err error) {
	take := s.fault.take
	if take == nil {
		take = (*reference).take
	}
	for i := range asks {
		if asks[i].Decision, err = take(s, asks[i].Charges); err != nil {
			return err
		}
	}
	return nil
}

func (s *reference) take(charges []core.Charge) (core.Decision, error) {
	if err := core.ValidateCharges(charges); err != nil {
		return core.Decision{}, err
	}
	return core.Decide(s.now, charges, s.statesOf(charges)), nil
}

func (s *reference) statesOf(charges []core.Charge) []core.State {
	states := make([]core.State, len(charges))
	for i, c := range charges {
		id := nameOf(c)
		if state := s.states[id]; state != nil && !s.fault.shortens {
			s.expires[id] = max(s.expires[id], state.Expires())
		}
		s.states[id] = turned(s.states[id], s.quotas[id].Algorithm, c.Quota.Algorithm)
		states[i], s.quotas[id] = s.states[id], c.Quota
	}
	return states
}

// turned returns the state of a key for an algorithm, if another may have charged it last.
func turned(state core.State, last, a core.Algorithm) core.State {
	if tallies, ok := state.(*core.Tallies); ok {
		if last, state = tallies.Only(); state == nil {
			return tallies
		}
	}
	switch {
	case state == nil:
		return core.NewState(a)
	case last.Alike(a):
		return state
	}
	return core.NewTallies(last, state)
}

func (s *reference) Return(_ context.Context, returns []core.Return) ([]core.Returned, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.returns.giveBack != nil {
		return s.returns.giveBack(s, returns)
	}
	return s.giveBack(returns)
}

func (s *reference) giveBack(returns []core.Return) ([]core.Returned, error) {
	if err := core.ValidateReturns(returns); err != nil {
		return nil, err
	}
	results := make([]core.Returned, len(returns))
	for i := range returns {
		if state := s.states[nameOf(returns[i].Charge)]; state != nil {
			results[i].Units = state.Return(&returns[i], s.now)
		}
	}
	for i := range returns {
		state := s.states[nameOf(returns[i].Charge)]
		if state == nil {
			state = core.NewState(returns[i].Quota.Algorithm)
		}
		results[i].Outcome = core.Look(s.now, returns[i].Charge, state)
	}
	return results, nil
}

func (s *reference) Reset(_ context.Context, charges []core.Charge) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.returns.reset != nil {
		return s.returns.reset(s, charges)
	}
	return s.reset(charges)
}

func (s *reference) reset(charges []core.Charge) error {
	if err := core.ValidateNames(charges); err != nil {
		return err
	}
	s.forget(charges)
	return nil
}

func (s *reference) forget(charges []core.Charge) {
	for _, c := range charges {
		delete(s.states, nameOf(c))
		delete(s.expires, nameOf(c))
	}
}

// TestReference also is the test of a faulty store, in the processes that
// TestFaults starts.
func TestReference(t *testing.T) {
	Run(t, func(t *testing.T, test func(*testing.T, Harness)) {
		fault := os.Getenv("STORETEST_FAULT")
		s := &reference{states: make(map[name]core.State), quotas: make(map[name]core.Quota), expires: make(map[name]int64),
			fault: faults[fault], returns: returnFaults[fault], leaseFault: leaseFaults[fault]}
		test(t, Harness{Store: s, SetTime: s.setTime, Elapse: s.elapse})
	})
}

// TestFaults tests the suite: it must find each fault with the subtests named there.
func TestFaults(t *testing.T) {
	if os.Getenv("STORETEST_FAULT") != "" {
		t.Skip("this is the faulty process")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]string)
	for name, fault := range faults {
		found[name] = fault.found
	}
	for name, fault := range leaseFaults {
		found[name] = fault.found
	}
	for name, fault := range returnFaults {
		found[name] = fault.found
	}
	for name, by := range found {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, subtest := range strings.Fields(by) {
				run := exec.Command(self, "-test.short", "-test.run=^TestReference$/"+strings.ReplaceAll(subtest, "/", "/^")+"$")
				run.Env = append(os.Environ(), "STORETEST_FAULT="+name, "LIMIT_SCHEDULES=400", "LIMIT_SEED=")
				out, err := run.CombinedOutput()
				if err == nil || !strings.Contains(string(out), "--- FAIL: TestReference/"+subtest) {
					t.Errorf("%s did not find it: %v\n%.2000s", subtest, err, out)
				}
			}
		})
	}
}
