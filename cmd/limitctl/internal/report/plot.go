package report

import (
	"fmt"
	"math"

	"github.com/routelimit/limit/cmd/limitctl/internal/words"
	"github.com/routelimit/limit/cmd/limitctl/replay"
)

// A plot is a picture over time, which the page draws in units of requests and columns.
// The words around it are HTML, which a phone does not shrink.
type plot struct {
	Data, Added               []column // by the policy, and by the new one
	Most                      int64    // requests: the upper end of the scale
	Start, Mid, End           string
	Label, Busiest, Intervals string
}

const plotColumns = 240

// plot returns a plot without its data.
func (r *Report) plot(list []column, gaps bool) *plot {
	p := &plot{Data: list, Most: 1, Start: minute(r.From), End: minute(r.To)}
	p.Intervals = "A column is " + words.Duration(list[0].Width) + "."
	if gaps {
		p.Intervals += " Time without requests is left out."
	} else {
		p.Mid = minute(r.From.Add(r.To.Sub(r.From) / 2))
	}
	return p
}

// Traffic shows admitted and refused requests over time.
func (r *Report) Traffic() *plot {
	list, gaps := columns(r.Buckets, r.Width, plotColumns)
	if len(list) == 0 {
		return nil
	}
	p := r.plot(list, gaps)
	for _, c := range list {
		p.Most = max(p.Most, c.Requests)
	}
	p.Busiest = busiest(list)
	p.Label = fmt.Sprintf("Requests over time, admitted and refused; at most %s a column. %s", words.Number(p.Most), p.Busiest)
	return p
}

// Changes shows the requests that each policy refuses over time.
func (r *Report) Changes() *plot {
	if r.Comparison == nil {
		return nil
	}
	old, gaps := columns(r.Buckets, r.Width, plotColumns)
	added, _ := columns(r.Comparison.Buckets, r.Width, plotColumns)
	if len(old) == 0 || len(old) != len(added) {
		return nil
	}
	p := r.plot(old, gaps)
	p.Added = added
	for i := range old {
		p.Most = max(p.Most, old[i].Refused, added[i].Refused)
	}
	p.Label = fmt.Sprintf("Refused requests over time: %s by the old policy, %s by the new one.",
		words.Number(r.Refused), words.Number(r.Comparison.BothRefuse+r.Comparison.OnlyNew))
	return p
}

// Peaks are places on a logarithmic scale from 0 to 1, which ends at the highest peak of a
// suggestion.
type peaks struct{ P50, P90, P99, Max float64 }

func peaksOf(s replay.Suggestion, w replay.WindowSuggestion) peaks {
	most := int64(2)
	for _, other := range s.Windows {
		most = max(most, other.Max)
	}
	at := func(v int64) float64 { return math.Log(float64(max(1, v))) / math.Log(float64(most)) }
	return peaks{at(w.P50), at(w.P90), at(w.P99), at(w.Max)}
}
