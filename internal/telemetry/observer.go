package telemetry

import (
	"errors"
	"sync"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
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
}

// An Observer adds decisions to metrics. Make it with [NewObserver]. It keeps what the
// Exporter made, since finding that by its labels takes longer there.
type Observer struct {
	to   Exporter
	made sync.Map // of Counting or Measuring, by series
}

// A series is a metric with the values of its labels.
type series struct {
	metric *Metric
	values [4]string
}

// NewObserver returns an Observer. Errors have metrics at once: 0 differs from unknown.
func NewObserver(to Exporter) *Observer {
	o := &Observer{to: to}
	for _, kind := range Values["kind"] {
		o.find(series{Errors, [4]string{kind}})
	}
	return o
}

// Observe adds what [limit.Options].Observe is called with.
func (o *Observer) Observe(d *limit.Decision, err error) {
	switch {
	case err == nil:
		o.decided(d)
	case errors.Is(err, limit.ErrLeaseLost):
		o.inc(Errors, LeaseLost)
	case d.Allowed:
		o.inc(Errors, Unsettled)
	default:
		o.inc(Errors, Undecided)
	}
}

func (o *Observer) decided(d *limit.Decision) {
	policy, mode := d.Policy(), d.Mode.String()
	marked, watched := false, false
	asked := d.Mode != core.ModeAllowed && d.Mode != core.ModeRefused // otherwise no quota was
	var outcome limit.RuleDecision
	for i := 0; d.Rule(i, &outcome); i++ {
		if asked && outcome.Capacity > 0 && !outcome.Exempt {
			o.observe(1-float64(outcome.Remaining)/float64(outcome.Capacity), Used, policy, outcome.Name)
		}
		watched = watched || outcome.Shadow
		switch {
		case outcome.Allowed:
		case outcome.Shadow:
			o.inc(Shadows, policy, outcome.Name)
		case outcome.Marked:
			marked = true
			o.inc(Marks, policy, outcome.Name)
		default:
			o.inc(Refusals, policy, outcome.Name)
		}
	}
	if watched {
		for _, pair := range d.Comparisons() {
			o.inc(Agreement, policy, pair.New.Name, pair.Old.Name, verdict(&pair))
		}
	}
	result := "admitted"
	switch {
	case d.Allowed && marked:
		result = "marked"
	case !d.Allowed:
		result = d.Outcome()
	}
	o.inc(Requests, policy, result, mode)
	if d.Latency > 0 { // it was measured
		o.observe(d.Latency.Seconds(), Latency, mode)
	}
	if d.Waited > 0 {
		o.observe(d.Waited.Seconds(), Waits, policy, result)
	}
}

func verdict(pair *limit.Comparison) string {
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

func (o *Observer) inc(m *Metric, values ...string) { o.find(seriesOf(m, values)).(Counting).Inc() }

func (o *Observer) observe(value float64, m *Metric, values ...string) {
	o.find(seriesOf(m, values)).(Measuring).Observe(value)
}

func seriesOf(m *Metric, values []string) series {
	s := series{metric: m}
	copy(s.values[:], values)
	return s
}

// find returns a Counting or a Measuring, which is made at the first event: a rule that
// never refuses has no counter of refusals.
func (o *Observer) find(s series) any {
	if known, ok := o.made.Load(s); ok {
		return known
	}
	return o.first(s)
}

// first is a function of its own, since the slice of values escapes.
func (o *Observer) first(s series) any {
	values := s.values[:len(s.metric.Labels)]
	var made any
	if s.metric.Kind == Counter {
		made = o.to.Counter(s.metric, values...)
	} else {
		made = o.to.Histogram(s.metric, values...)
	}
	known, _ := o.made.LoadOrStore(s, made)
	return known
}
