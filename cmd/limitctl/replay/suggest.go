package replay

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/histogram"
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
}

// A WindowSuggestion is about limits of one window. Each client has a peak: the most
// requests that it sent within any window of that length. It is counted in tenths of the
// window, so it may include what came up to a tenth of a window earlier.
type WindowSuggestion struct {
	Window  time.Duration `json:"window_ns"`
	P50     int64         `json:"p50"` // of the peaks of all clients
	P90     int64         `json:"p90"`
	P99     int64         `json:"p99"`
	Max     int64         `json:"max"`
	Choices []Choice      `json:"choices"` // by Options.Shares
}

// A Choice is the lowest limit that refuses at most a share of clients. A client counts
// as refused if any request is, which for an algorithm that counts like
// [limit.SlidingCells] is exact; [limit.SlidingLog] refuses at most as many.
type Choice struct {
	Share           float64 `json:"share"`            // of clients that may be refused
	Limit           int64   `json:"limit"`            // units in a window
	RefusedClients  int64   `json:"refused_clients"`  // estimated if the suggestion is sampled
	RefusedRequests int64   `json:"refused_requests"` // by windows one after the other; an estimate for other algorithms
	Rule            string  `json:"rule"`             // in the text grammar
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
	fixed    [len(observed)]histogram.Histogram // of the requests of clients in windows of the clock
}

// A series is the requests of one client on one route.
type series struct {
	requests int64
	windows  [len(observed)]window
}

type window struct {
	newest  int64 // the number of the last cell with a request
	counts  [keeps]uint32
	sum     uint32 // of counts
	peak    uint32
	inFixed uint32 // requests in the window of the clock that newest is in
}

func newSuggester(most int) *suggester {
	return &suggester{most: most, weight: 1, groups: make(map[groupID]*group)}
}

// count counts a request for its client, and for its user.
func (s *suggester) count(e *event) {
	for _, route := range [...]int{e.route, allRoutes} {
		s.add(e.time, e.client.hash, groupID{route, false})
		if e.user != noUser {
			s.add(e.time, e.user.hash, groupID{route, true})
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
	if sent == nil && hash >= s.from {
		s.makeRoom()
	}
	if hash < s.from {
		return
	}
	if sent == nil {
		sent = new(series)
		g.series[hash] = sent
		s.size++
	}
	sent.requests++
	for i := range sent.windows {
		sent.windows[i].add(t/(observed[i]/cells), &g.fixed[i], s.weight)
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
func (w *window) add(cell int64, fixed *histogram.Histogram, weight float64) {
	if cell != w.newest {
		if cell/cells != w.newest/cells {
			w.close(fixed, weight)
		}
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
	w.inFixed++
	w.peak = max(w.peak, w.sum)
}

// close ends a window of the clock.
func (w *window) close(fixed *histogram.Histogram, weight float64) {
	if w.inFixed > 0 {
		fixed.Add(int64(w.inFixed), weight)
		w.inFixed = 0
	}
}

// list makes the suggestions: for all routes together, unless there is only one, and then for
// each, first those to which one client has sent the most requests. An attacked login so comes
// before a page that everybody reads. Times in whole seconds say nothing about windows of one
// second.
func (s *suggester) list(routes []string, shares []float64, finer bool) []Suggestion {
	list := []Suggestion{}
	seen := make(map[int]bool)
	for id := range s.groups {
		seen[id.route] = true
	}
	for id, g := range s.groups {
		if len(g.series) == 0 || id.route == allRoutes && len(seen) == 2 { // all clients were left out, or there is one route
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
				suggestion.Windows = append(suggestion.Windows, s.window(g, i, key, shares))
			}
		}
		list = append(list, suggestion)
	}
	busiest := map[string]int64{}
	for i := range list {
		busiest[list[i].Route] = max(busiest[list[i].Route], list[i].Busiest)
	}
	busiest[""] = math.MaxInt64
	slices.SortFunc(list, func(a, b Suggestion) int {
		return cmp.Or(cmp.Compare(busiest[b.Route], busiest[a.Route]), strings.Compare(a.Route, b.Route), strings.Compare(a.Key, b.Key))
	})
	return list
}

// window makes the suggestions for the window of a number in observed.
func (s *suggester) window(g *group, i int, key limit.KeyResolver, shares []float64) WindowSuggestion {
	var peaks []int64
	for _, sent := range g.series {
		sent.windows[i].close(&g.fixed[i], s.weight)
		peaks = append(peaks, int64(sent.windows[i].peak))
	}
	slices.Sort(peaks)
	n := len(peaks)
	quantile := func(q float64) int64 { return peaks[max(0, int(math.Ceil(q*float64(n)))-1)] }
	w := WindowSuggestion{Window: time.Duration(observed[i]) * time.Microsecond,
		P50: quantile(0.5), P90: quantile(0.9), P99: quantile(0.99), Max: peaks[n-1]}
	for _, share := range shares {
		may := min(n-1, int(math.Floor(share*float64(n)+1e-9))) // clients that the limit may refuse
		most := peaks[n-1-max(0, may)]
		above, _ := slices.BinarySearch(peaks, most+1)
		clients := int64(math.Round(float64(n-above) * s.weight))
		w.Choices = append(w.Choices, Choice{
			Share: share, Limit: most, Rule: ruleText(key, w.Window, most),
			RefusedClients:  clients,
			RefusedRequests: max(clients, int64(math.Round(g.fixed[i].Above(most)))), // a refused client has one at least
		})
	}
	return w
}

// ruleText returns a rule that Parse reads. A sliding log cannot count above its bound.
func ruleText(key limit.KeyResolver, window time.Duration, most int64) string {
	rule := limit.Per(key, window, most)
	if most > core.MaxLog {
		rule.Algorithm = limit.SlidingCells{}
	}
	return rule.String()
}
