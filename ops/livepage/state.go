package livepage

import (
	"cmp"
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/operate"
	"github.com/routelimit/limit/ops/topkeys"
)

// A query says which part of the state a viewer looks at, with the values that the page has alone.
// It is comparable.
type query struct {
	text          string // part of the names of policies, in lower case
	sort          string
	offset, limit int
	policy        string // whose keys are shown; "" for all
	order         string // of keys
}

const (
	mostRows     = 100
	usualRows    = 50
	mostText     = 100
	mostName     = 1000
	maxListed    = 50 // bans, overrides
	stateBytes   = 64 << 10
	rowsBytes    = 28 << 10 // of policies
	keysBytes    = 10 << 10
	refusedBytes = 12 << 10
	listBytes    = 5 << 10 // of bans, and of overrides
	fewPeriods   = 40      // of modes: more are at the expense of policies
	periodBytes  = 60
)

func queryOf(v url.Values) query {
	number := func(name string, usual, least, most int) int {
		n, err := strconv.Atoi(v.Get(name))
		if err != nil {
			return usual
		}
		return min(max(n, least), most)
	}
	oneOf := func(name string, words ...string) string {
		if word := v.Get(name); slices.Contains(words, word) {
			return word
		}
		return words[0]
	}
	text := strings.ToLower(v.Get("q"))
	q := query{
		text:   text[:min(len(text), mostText)],
		sort:   oneOf("sort", "refused", "requests", "full", "name"),
		offset: number("offset", 0, 0, maxPolicies),
		limit:  number("limit", usualRows, 1, mostRows),
		policy: v.Get("policy"),
		order:  oneOf("order", "refusals", "use"),
	}
	if len(q.policy) > mostName {
		q.policy = ""
	}
	return q
}

// states makes the state once a second for all viewers, and each view of it once for all that ask
// for it.
type states struct {
	mu     sync.Mutex
	second uint32
	totals *totals
	views  map[query][]byte
	lifted map[bannedKey]time.Time // bans of rules that operators ended, with the last decision before
}

// outdated has the next view made anew, since an operator has changed something.
func (s *states) outdated() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.totals = nil
}

// view returns the part of the state that a query asks for, as a JSON object.
func (p *page) view(q query) []byte {
	now := p.collector.now()
	s := &p.states
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.totals == nil || s.second != now.second {
		s.second, s.totals, s.views = now.second, p.total(now), map[query][]byte{}
	}
	if text, ok := s.views[q]; ok {
		return text
	}
	text, err := json.Marshal(p.state(s.totals, q))
	if err != nil {
		panic(err) // the types have no value that JSON lacks
	}
	if len(s.views) < 2*maxViewers {
		s.views[q] = text
	}
	return text
}

// totals are what all views of a second share.
type totals struct {
	state state       // without policies and keys
	rows  []policyRow // with the counts by which they are sorted: see collector.row
	sets  map[string][]limit.RuleSet
	idle  map[string]int // routes without a request yet, by the text of their sets
	now   moment
	start time.Time               // of the collector, on the wall clock of now
	keys  map[query][]topkeys.Key // by policy and order
}

func (p *page) total(now moment) *totals {
	wall := time.Now()
	start := wall.Round(0).Add(-time.Since(p.collector.start)) // on the clock of now, which may have been set since
	stats := operate.ReadStats(p.limiter)
	t := &totals{now: now, start: start, sets: map[string][]limit.RuleSet{}, idle: map[string]int{}, keys: map[query][]topkeys.Key{}, state: state{
		At: wall.UnixMilli(), Instance: p.options.Name, Since: start.UnixMilli(), Unavailable: stats.Unavailable,
		Waiters: stats.Waiters, Reserved: stats.Reserved, Settled: stats.Settled, Forgiven: stats.Forgiven,
		Viewers: int64(p.viewers.count()),
		Outage:  outage{Since: unixMilli(stats.Since), Until: unixMilli(stats.Until), Owed: stats.Owed, Lost: unixMilli(stats.Lost), Doubted: unixMilli(stats.Doubted)},
	}}
	for name, set := range operate.Policies(p.limiter) {
		if name == "" {
			name = set.String()
			if t.idle[name]++; t.idle[name] > 1 {
				continue
			}
		}
		t.sets[name] = append(t.sets[name], set)
	}
	p.collector.total(t)
	newest := p.collector.refusals.newest()
	t.state.Refusals = rows(newest, keptRefusals, refusedBytes, func(r *refusal) refusalRow { return p.refusalRow(t, r) })
	p.lists(t)
	return t
}

func (p *page) state(t *totals, q query) *state {
	s := t.state
	var matching []policyRow
	for _, row := range t.rows {
		if strings.Contains(strings.ToLower(row.Name), q.text) {
			matching = append(matching, row)
		}
	}
	slices.SortFunc(matching, func(a, b policyRow) int {
		var by int
		switch q.sort {
		case "refused":
			by = cmp.Or(cmp.Compare(b.Refused, a.Refused), cmp.Compare(b.Admitted, a.Admitted))
		case "requests":
			by = cmp.Compare(b.Admitted+b.Refused, a.Admitted+a.Refused)
		case "full":
			by = cmp.Compare(b.Full, a.Full)
		}
		return cmp.Or(cmp.Compare(t.idle[a.Name], t.idle[b.Name]), by, strings.Compare(a.Name, b.Name))
	})
	s.Policies.Total, s.Policies.Matching = len(t.rows), len(matching)
	s.Policies.Offset = min(q.offset, len(matching))
	matching = matching[s.Policies.Offset:]
	row := func(of *policyRow) policyRow { return p.collector.row(t, *of) }
	s.Policies.Rows = rows(matching, q.limit, rowsBytes-periodBytes*max(0, len(s.Modes)-fewPeriods), row)
	if len(s.Policies.Rows) == 0 && len(matching) > 0 {
		s.Policies.Rows = []policyRow{row(&matching[0])} // the next page begins after it
	}
	if len(s.Policies.Rows) < len(matching) {
		s.Policies.Next = s.Policies.Offset + len(s.Policies.Rows)
	}
	s.Keys = p.keys(t, q)
	return &s
}

// rows returns what row makes of a list: at most so many rows and bytes of JSON, so that no state
// is larger than stateBytes, whatever names and keys are like.
func rows[E, R any](list []E, most, bytes int, row func(*E) R) []R {
	made := []R{}
	for i := range list[:min(most, len(list))] {
		r := row(&list[i])
		text, err := json.Marshal(r)
		if err != nil {
			panic(err) // the types have no value that JSON lacks
		}
		if bytes -= len(text) + 1; bytes < 0 {
			break
		}
		made = append(made, r)
	}
	return made
}
