package live

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
)

// A State is the quota of one key of a rule at a moment.
type State struct {
	Policy   string    `json:"policy"`
	Rule     string    `json:"rule"`
	Key      string    `json:"key"`
	Quoted   string    `json:"key_quoted,omitempty"`   // in the syntax of Go, if it is not UTF-8
	Plan     string    `json:"plan,omitempty"`         // whose limit it is, if not the usual one
	Limit    int64     `json:"limit"`                  // of this key: a plan or an override may change it
	Override bool      `json:"override,omitempty"`     // whether an override of the key sets the limit
	Capacity int64     `json:"capacity"`               // the most units that can be left
	Used     int64     `json:"used"`                   // of Capacity
	Percent  float64   `json:"used_percent"`           // of Capacity
	Refused  bool      `json:"refused"`                // whether a request of cost 1 would be
	Until    time.Time `json:"refused_until,omitzero"` // by the clock of this machine
	FullAt   time.Time `json:"full_at,omitzero"`       // when nothing is used any more
	Shadow   bool      `json:"shadow,omitempty"`       // whether the rule only watches
	Owed     int64     `json:"owed,omitempty"`         // units above the limit, which the key pays back until Until
	Holds    int64     `json:"holds,omitempty"`        // holds that live
	Held     int64     `json:"held,omitempty"`         // units that count for them
	NextEnd  time.Time `json:"next_end,omitzero"`      // when the next of them ends, unless it is extended
	Ended    int64     `json:"ended,omitempty"`        // holds that have ended, and are not given back yet

	rule *Rule
}

// Of returns the rule. Its names may be those of another one: see Policy.Each.
func (s *State) Of() *Rule { return s.rule }

// Any reports whether the key has used anything.
func (s *State) Any() bool {
	return s.Used > 0 || s.Refused || !s.FullAt.IsZero() || s.Holds > 0 || s.Ended > 0
}

// States returns the states that a key of a rule has: more than one if plans have states
// of their own. If they have not, Redis does not say which plan the key is on: it is the
// first one that the use fits, from the usual limit up.
func (l *Limits) States(ctx context.Context, r *Rule, key string) (states []State, err error) {
	for _, plan := range r.plans() {
		s, err := l.state(ctx, r, key, plan)
		if err == nil {
			err = l.account(ctx, &s)
		}
		if err != nil {
			return nil, err
		}
		if plan == "" || s.Any() {
			states = append(states, s)
		}
	}
	return states, nil
}

func (l *Limits) state(ctx context.Context, r *Rule, key, plan string) (State, error) {
	s, err := l.peek(ctx, r, key, plan)
	for _, larger := range r.larger {
		if err != nil || r.own || s.Used < s.Capacity || s.Override {
			break
		}
		with, err := l.peek(ctx, r, key, larger)
		if err != nil {
			return State{}, err
		}
		if with.Used <= s.Capacity { // such as a client that has used up the usual limit
			break
		}
		s = with
	}
	return s, err
}

// peek returns the state that a request of cost 1 would find.
func (l *Limits) peek(ctx context.Context, r *Rule, key, plan string) (State, error) {
	charge, overridden := l.charge(r, key, plan)
	d, err := core.Take(ctx, l.store, []core.Charge{charge})
	if err != nil {
		return State{}, plain(err)
	}
	now, o := time.Now(), &d.Outcomes()[0]
	fits, capacity := o.Need(1), charge.Quota.Capacity()
	s := State{rule: r, Policy: r.Policy, Rule: r.Name, Key: key, Plan: plan,
		Limit: charge.Quota.Limit, Override: overridden, Capacity: capacity, Used: capacity - o.Remaining,
		Refused: !fits, Shadow: r.Shadow != nil && r.Shadow.Enforced == 0}
	if !utf8.ValidString(key) {
		s.Quoted = strconv.QuoteToASCII(key)
	}
	s.Percent = 100 * float64(s.Used) / float64(max(1, s.Capacity))
	if o.ResetAfter > 0 {
		s.FullAt = now.Add(core.Duration(o.ResetAfter))
	}
	if s.Refused && o.RetryAfter != core.Never {
		s.Until = now.Add(core.Duration(o.RetryAfter))
	}
	return s, nil
}

// account fills in what the key owes and holds.
func (l *Limits) account(ctx context.Context, s *State) error {
	charge, _ := l.charge(s.rule, s.Key, s.Plan)
	a, err := l.store.Account(ctx, charge)
	if err != nil {
		return plain(err)
	}
	s.Owed, s.Holds, s.Held, s.Ended = a.Owed, a.Holds, a.Held, a.Ended
	if a.Next > 0 {
		s.NextEnd = time.Now().Add(core.Duration(a.Next))
	}
	return nil
}

// plain returns the cause of an error of the store, whose own words are about requests.
func plain(err error) error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		if causes := joined.Unwrap(); len(causes) == 2 && errors.Is(causes[0], core.ErrUnavailable) {
			return causes[1]
		}
	}
	return err
}

// Resettable reports whether Reset can do anything about a rule: the requests in flight of
// limit.Concurrency end by themselves.
func (r *Rule) Resettable() bool {
	_, leases := r.Algorithm.(limit.Concurrency)
	return !leases
}

// Reset makes the quota of a key full again, for all plans.
func (l *Limits) Reset(ctx context.Context, r *Rule, key string) error {
	var charges []core.Charge
	for _, plan := range r.plans() {
		charge, _ := l.charge(r, key, plan)
		charges = append(charges, charge)
	}
	for some := range slices.Chunk(charges, core.MaxCharges) {
		if err := l.store.Reset(ctx, some); err != nil {
			return plain(err)
		}
	}
	return nil
}
