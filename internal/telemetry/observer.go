package telemetry

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/operate"
)

// A Counting counts. It is safe for concurrent use.
type Counting interface{ Inc() }

// A Measuring notes values. It is safe for concurrent use.
type Measuring interface{ Observe(float64) }

// An Exporter makes the metrics with labels, whose values are in the order of
// [Metric].Labels. Two calls with the same values return the same metric.
type Exporter interface {
	Counter(m *Metric, values ...string) Counting
	Histogram(m *Metric, values ...string) Measuring
	Buckets(m *Metric, values ...string) *Buckets // of Used
}

const modeCount = int(core.ModeBarred) + 1

// An Observer adds decisions to metrics. Make it with [NewObserver]. It looks each
// metric up once, since finding one by its labels takes longer than counting.
type Observer struct {
	to       Exporter
	problems [3]Counting // by the index in Values["kind"]
	latency  [modeCount]atomic.Pointer[Measuring]

	policies atomic.Pointer[map[string]*policy] // replaced under mu
	mu       sync.Mutex
}

// A policy has the metrics of one policy.
type policy struct {
	name     string
	requests [len(results)][modeCount]atomic.Pointer[Counting] // by the index in results
	returns  atomic.Pointer[Counting]
	rules    atomic.Pointer[[]*rule] // by the index of the rule, as last seen
	others   sync.Map                // of *rule by name
}

// A rule has the metrics of one rule of a policy.
type rule struct {
	name                     string
	used                     *Buckets
	refusals, marks, shadows atomic.Pointer[Counting]
}

// NewObserver returns an Observer. Errors have metrics at once: 0 differs from unknown.
func NewObserver(to Exporter) *Observer {
	o := &Observer{to: to}
	o.policies.Store(new(map[string]*policy))
	for i, kind := range Values["kind"] {
		o.problems[i] = to.Counter(Errors, kind)
	}
	return o
}

// Observe adds what [limit.Options].Observe is called with.
func (o *Observer) Observe(d *limit.Decision, err error) {
	switch {
	case d.GivenBack:
		p := o.policy(d.Policy)
		o.inc(&p.returns, GivenBack, p.name, "", "")
	case err == nil:
		o.decided(d)
	case errors.Is(err, limit.ErrLeaseLost):
		o.problems[2].Inc()
	case d.Allowed:
		o.problems[1].Inc()
	default:
		o.problems[0].Inc()
	}
}

func (o *Observer) decided(d *limit.Decision) {
	p := o.policy(d.Policy)
	marked, watched := false, false
	asked := d.Mode < core.ModeLocal || d.Mode > core.ModeRefused // otherwise the store was not
	i := 0
	for outcome := range d.Rules() {
		r := p.rule(o, i, outcome.Name)
		i++
		if asked && outcome.Capacity > 0 && !outcome.Exempt {
			r.used.Observe(1 - float64(outcome.Remaining)/float64(outcome.Capacity))
		}
		watched = watched || outcome.Shadow
		switch {
		case outcome.Allowed:
		case outcome.Shadow:
			o.inc(&r.shadows, Shadows, p.name, r.name, "")
		case outcome.Marked:
			marked = true
			o.inc(&r.marks, Marks, p.name, r.name, "")
		default:
			o.inc(&r.refusals, Refusals, p.name, r.name, "")
		}
	}
	if watched {
		for _, pair := range operate.Comparisons(*d) {
			o.to.Counter(Agreement, p.name, pair.New.Name, pair.Old.Name, verdict(&pair)).Inc()
		}
	}
	result := resultOf(d, marked)
	mode := min(int(d.Mode), modeCount-1)
	if c := p.requests[result][mode].Load(); c != nil {
		(*c).Inc()
	} else { // the words of the labels cost time too
		o.inc(&p.requests[result][mode], Requests, p.name, results[result], core.Mode(mode).String())
	}
	if d.Latency > 0 { // it was measured
		to := o.latency[mode].Load()
		if to == nil {
			made := o.to.Histogram(Latency, core.Mode(mode).String())
			to = &made
			o.latency[mode].Store(to)
		}
		(*to).Observe(d.Latency.Seconds())
	}
	if d.Waited > 0 {
		o.to.Histogram(Waits, p.name, results[result]).Observe(d.Waited.Seconds())
	}
}

// resultOf returns what the caller met, as an index of results. It spares
// decisions that were admitted the copy of a Decision that a method costs.
func resultOf(d *limit.Decision, marked bool) int {
	switch {
	case d.Allowed && marked:
		return 4
	case d.Allowed:
		return 0
	}
	return max(1, slices.Index(results[:], d.Outcome()))
}

func verdict(pair *operate.Comparison) string {
	switch {
	case pair.Old.Allowed && pair.New.Allowed:
		return "both_admit"
	case pair.Old.Allowed:
		return "only_new_refuses"
	case pair.New.Allowed:
		return "only_old_refuses"
	}
	return "both_refuse"
}

// inc counts, and makes the counter at the first event: a rule that never refuses has no counter of
// refusals.
func (o *Observer) inc(at *atomic.Pointer[Counting], m *Metric, policy, label, mode string) {
	c := at.Load()
	if c == nil {
		c = o.first(at, m, policy, label, mode)
	}
	(*c).Inc()
}

// first is a function of its own, since the slice of values escapes.
func (o *Observer) first(at *atomic.Pointer[Counting], m *Metric, policy, label, mode string) *Counting {
	values := []string{policy, label, mode}
	c := o.to.Counter(m, values[:len(m.Labels)]...)
	at.Store(&c)
	return &c
}

func (o *Observer) policy(name string) *policy {
	if p := (*o.policies.Load())[name]; p != nil {
		return p
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	known := *o.policies.Load()
	if p := known[name]; p != nil {
		return p
	}
	next := make(map[string]*policy, len(known)+1)
	maps.Copy(next, known)
	p := &policy{name: name}
	p.rules.Store(new([]*rule))
	next[name] = p
	o.policies.Store(&next)
	return p
}

// rule returns the metrics of a rule. Rules of a policy change their index when the program changes
// the policy.
func (p *policy) rule(o *Observer, i int, name string) *rule {
	seen := *p.rules.Load()
	if i < len(seen) && seen[i].name == name {
		return seen[i]
	}
	found, ok := p.others.Load(name)
	if !ok {
		found, _ = p.others.LoadOrStore(name, &rule{name: name, used: o.to.Buckets(Used, p.name, name)})
	}
	r := found.(*rule)
	if i == len(seen) {
		next := append(seen[:i:i], r)
		p.rules.Store(&next)
	}
	return r
}
