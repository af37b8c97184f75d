package replay

import (
	"cmp"
	"context"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/patterns"
	"github.com/routelimit/limit/rules"
)

// A Suggestion is what limits on a route, for one kind of key, would have cost.
type Suggestion struct {
	Route    string  `json:"route"` // "" for all routes together
	Key      string  `json:"key"`   // "ip" or "user"
	Requests int64   `json:"requests"`
	Busiest  int64   `json:"busiest"` // requests of the client that sent most
	Clients  int64   `json:"clients"` // with at least one request; estimated if Sampled is below 1
	Sampled  float64 `json:"sampled"` // the part of the clients that the suggestion is made from: see Memory

	// Windows are 1s, 10s, 1m and 1h. If all times of the log are whole seconds, 1s is
	// left out: such a log does not say what fell within one second.
	Windows []WindowSuggestion `json:"windows"`

	// Replayed says whether the rules were replayed, which needs Options.Again. If not,
	// RefusedClients and RefusedRequests are 0.
	Replayed bool `json:"replayed"`
}

// A WindowSuggestion is about limits of one window. Each client has a peak: the most
// requests that it sent within any window of that length. It is counted in tenths of the
// window, so it may include what came up to a tenth of a window earlier.
type WindowSuggestion struct {
	Window time.Duration `json:"window_ns"`
	P50    int64         `json:"p50"` // of the peaks of all clients
	P90    int64         `json:"p90"`
	P99    int64         `json:"p99"`
	Max    int64         `json:"max"`

	// Rule is the lowest limit that refuses at most Options.Share of the clients, in the text
	// grammar. A client counts as refused if any request is.
	Rule string `json:"rule"`

	// RefusedClients and RefusedRequests are what the rule alone would have refused on its
	// route. Of a rule per user, clients are users.
	RefusedClients  int64 `json:"refused_clients"`
	RefusedRequests int64 `json:"refused_requests"`
}

// observed are the windows of suggestions.
var observed = [...]int64{second, 10 * second, minute, hour}

const (
	cells = 10 // of a window, as limit.SlidingCells has them
	keeps = cells + 1
)

// A suggester counts what each client sends on each route.
type suggester struct {
	most   int    // series
	size   int    // series now
	from   uint64 // clients with a lower hash are left out
	weight float64
	groups map[groupID]*group
}

// A groupID is a route, or allRoutes, and a kind of key.
type groupID struct {
	route int
	user  bool
}

const allRoutes = -1

// A group is the requests on a route. It identifies clients by their hashes.
type group struct {
	requests int64
	series   map[uint64]*series
}

// A series is the requests of one client on one route.
type series struct {
	requests int64
	windows  [len(observed)]window
}

type window struct {
	newest int64 // the number of the last cell with a request
	counts [keeps]uint32
	sum    uint32 // of counts
	peak   uint32
}

// count counts a request for its client, and for its user.
func (s *suggester) count(e *event) {
	user := hash(e.user)
	for _, route := range [...]int{e.route, allRoutes} {
		s.add(e.time, e.client.hash, groupID{route, false})
		if e.user != "" {
			s.add(e.time, user, groupID{route, true})
		}
	}
}

func (s *suggester) add(t int64, hash uint64, of groupID) {
	g := s.groups[of]
	if g == nil {
		g = &group{series: make(map[uint64]*series)}
		s.groups[of] = g
	}
	g.requests++
	sent := g.series[hash]
	if sent == nil {
		if hash >= s.from {
			s.makeRoom()
		}
		if hash < s.from {
			return
		}
		sent = new(series)
		g.series[hash] = sent
		s.size++
	}
	sent.requests++
	for i := range sent.windows {
		sent.windows[i].add(t / (observed[i] / cells))
	}
}

// makeRoom leaves out half of the clients while there are too many series.
func (s *suggester) makeRoom() {
	for s.size >= s.most && s.weight < 1<<40 {
		s.from += (math.MaxUint64 - s.from) / 2
		s.weight *= 2
		s.size = 0
		for _, g := range s.groups {
			maps.DeleteFunc(g.series, func(hash uint64, _ *series) bool { return hash < s.from })
			s.size += len(g.series)
		}
	}
}

// add counts a request in a cell. Cells do not go back.
func (w *window) add(cell int64) {
	if cell != w.newest {
		if cell-w.newest >= keeps {
			w.counts, w.sum = [keeps]uint32{}, 0
		} else {
			for c := w.newest + 1; c <= cell; c++ {
				w.sum -= w.counts[c%keeps]
				w.counts[c%keeps] = 0
			}
		}
		w.newest = cell
	}
	w.counts[cell%keeps]++
	w.sum++
	w.peak = max(w.peak, w.sum)
}

// list makes the suggestions, at most so many: for all routes together, and then for each, first
// those to which one client has sent the most requests, such as an attacked login. Times in whole
// seconds say nothing about windows of one second. It leaves out routes that a policy file cannot
// have beside those before them, the other routes, which have no pattern, and rules per user where
// requests have none: these would share one quota.
func (s *suggester) list(most int, routes []string, share float64, finer bool) []Suggestion {
	list := []Suggestion{}
	busiest := make(map[string]int64) // by route
	for id, g := range s.groups {
		if len(g.series) == 0 || id.user && s.anonymous(id.route) > 0 { // or all clients were left out
			continue
		}
		key, name := limit.ByIP, "ip"
		if id.user {
			key, name = limit.ByUser, "user"
		}
		suggestion := Suggestion{Key: name, Requests: g.requests,
			Clients: int64(float64(len(g.series)) * s.weight), Sampled: 1 / s.weight}
		if id.route != allRoutes {
			suggestion.Route = routes[id.route]
		}
		for _, sent := range g.series {
			suggestion.Busiest = max(suggestion.Busiest, sent.requests)
		}
		for i, length := range observed {
			if length > second || finer {
				suggestion.Windows = append(suggestion.Windows, g.window(i, key, share))
			}
		}
		list = append(list, suggestion)
		busiest[suggestion.Route] = max(busiest[suggestion.Route], suggestion.Busiest)
	}
	busiest[""] = math.MaxInt64
	slices.SortFunc(list, func(a, b Suggestion) int {
		return cmp.Or(cmp.Compare(busiest[b.Route], busiest[a.Route]), strings.Compare(a.Route, b.Route), strings.Compare(a.Key, b.Key))
	})
	mux, fits := http.NewServeMux(), map[string]bool{"": true}
	list = slices.DeleteFunc(list, func(s Suggestion) bool {
		if _, known := fits[s.Route]; !known {
			_, problem := patterns.Register(mux, s.Route, patterns.Of{})
			fits[s.Route] = problem == ""
		}
		return !fits[s.Route]
	})
	return list[:min(most, len(list))]
}

// anonymous returns how many requests of a route have no user, if others have one.
func (s *suggester) anonymous(route int) int64 {
	users := s.groups[groupID{route, true}]
	if users == nil {
		return 0
	}
	return s.groups[groupID{route, false}].requests - users.requests
}

// window makes the suggestion for the window of a number in observed.
func (g *group) window(i int, key limit.KeyResolver, share float64) WindowSuggestion {
	var peaks []int64
	for _, sent := range g.series {
		peaks = append(peaks, int64(sent.windows[i].peak))
	}
	slices.Sort(peaks)
	n := len(peaks)
	quantile := func(q float64) int64 { return peaks[max(0, int(math.Ceil(q*float64(n)))-1)] }
	may := min(n-1, int(math.Floor(share*float64(n)+1e-9))) // clients that the limit may refuse
	length := time.Duration(observed[i]) * time.Microsecond
	return WindowSuggestion{Window: length, P50: quantile(0.5), P90: quantile(0.9), P99: quantile(0.99), Max: peaks[n-1],
		Rule: ruleText(key, length, peaks[n-1-may])}
}

// ruleText returns a rule that Parse reads. A sliding log cannot count above its bound.
func ruleText(key limit.KeyResolver, window time.Duration, most int64) string {
	rule := limit.Per(key, window, most)
	if most > core.MaxLog {
		rule.Algorithm = limit.SlidingCells{}
	}
	return rule.String()
}

// tryOut reads the log again, and notes what each suggested rule would have refused. The rules
// are shadows, so that none changes what another decides.
func (r *run) tryOut(ctx context.Context) error {
	list := r.result.Suggestions
	o := r.options
	o.Policies, o.Compare, o.Exempt, o.Bar, o.NoSuggestions = nil, nil, nil, nil, true
	var shadows []limit.Rule
	for i, s := range list {
		for _, w := range s.Windows {
			rule := limit.MustParse(w.Rule).Rules()[0]
			rule.Name, rule.Shadow = strconv.Itoa(len(shadows)), new(rules.Shadow)
			shadows = append(shadows, rule)
		}
		if i+1 < len(list) && list[i+1].Route == s.Route {
			continue // for another kind of key: a route has one policy
		}
		p := Policy{Name: "suggested", Rules: limit.Rules(shadows...)}
		if s.Route != "" {
			p.Routes = []string{s.Route}
		}
		o.Policies, shadows = append(o.Policies, p), nil
	}
	second, err := newRun(&o)
	if err != nil {
		return err
	}
	second.until = r.now   // the log may have grown
	var tried []*ruleCount // in the order of the suggestions
	for _, b := range second.sides[0].bound {
		for _, c := range b.rules {
			c.refusedBy = make(map[string]struct{})
			tried = append(tried, c)
		}
	}
	log, err := o.Again()
	if err != nil || log == nil {
		return err
	}
	defer log.Close()
	if err := second.read(ctx, log); err != nil {
		return err
	}
	for i := range list {
		list[i].Replayed = true
		for w := range list[i].Windows {
			window := &list[i].Windows[w]
			window.RefusedRequests, window.RefusedClients = tried[0].Shadowed, int64(len(tried[0].refusedBy))
			tried = tried[1:]
		}
	}
	return log.Err()
}
