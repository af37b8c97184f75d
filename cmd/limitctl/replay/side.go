package replay

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/adapter"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/grammar"
	"github.com/routelimit/limit/rules"
	"github.com/routelimit/limit/stores/memstore"
)

// A side is one set of policies with quotas of its own.
type side struct {
	limiter *limit.Limiter
	adapter adapter.Adapter[*side]
	now     int64 // the clock of the store
	mux     *http.ServeMux
	hosts   bool
	cleans  bool     // whether a path counts as the one that mux redirects it to
	always  []*bound // policies without routes
	bound   []*bound // all, in their order
	present *presence

	// Of the current request.
	event   *event
	pattern string
	values  map[string]string
	found   match // by the handlers of mux

	request *http.Request

	outcomes   []outcome // of the requests of a batch
	overflowed int64
}

// A bound is a policy on a side.
type bound struct {
	name     string
	routes   []string
	policy   *limit.Policy
	rules    []*ruleCount
	requests int64
	refused  int64
	delayed  int64
	watches  bool     // whether a rule is a shadow, or marks
	values   []string // names of path values that rules need
	quotas   string   // of a policy without routes: what stands for its route
}

// A ruleCount is the refusals of a rule.
type ruleCount struct {
	name, text       string
	key              grammar.Key
	refused, alone   int64
	shadowed, marked int64
	keys             *top[string]

	bit              uint64 // of the key: see presence
	leaves           bool   // whether the rule is left out as long as no request has its key
	keyless, leftOut int64
}

// newSide binds policies. The error joins one for each thing wrong with them.
func newSide(policies []Policy, exempt func(limit.Client) bool, bar func(limit.Client) time.Duration, o *Options, present *presence, notes *notes) (*side, error) {
	s := &side{mux: http.NewServeMux(), cleans: o.CleanPaths, present: present}
	s.request = &http.Request{Header: make(http.Header)}
	s.limiter = limit.New(memstore.New(&memstore.Options{MaxKeys: o.MaxKeys, Now: func() int64 { return s.now }}), &limit.Options{
		Exempt: exempt, Bar: bar, Proxies: limit.Proxies{IPv6Prefix: o.IPv6Prefix}, Log: slog.New(slog.DiscardHandler),
	})
	s.adapter = adapter.Adapter[*side]{
		Route:     func(s *side) (method, pattern string) { return "", s.pattern },
		PathValue: func(s *side, name string) string { return s.values[name] },
		Caller:    limit.Caller[*side]{User: func(s *side) string { return s.event.user.name }},
		Next:      func(*side, *http.Request) (int, error) { return http.StatusOK, nil },
	}
	var errs []error
	for i := range policies {
		if err := s.bind(&policies[i], o, notes); err != nil {
			errs = append(errs, err)
		}
	}
	return s, errors.Join(errs...)
}

func (s *side) bind(p *Policy, o *Options, notes *notes) error {
	rules, err := p.Rules.Derive("", func(r limit.Rule) limit.Rule {
		if leases(r) {
			return replayable(r, notes)
		}
		return s.leaveOut(replayable(r, notes), s.present.bit(syntaxOf(r.Key)))
	})
	if err != nil {
		return err
	}
	b := &bound{routes: p.Routes}
	b.name = cmp.Or(p.Name, strings.Join(p.Routes[:min(1, len(p.Routes))], ""), p.Rules.String())
	pattern := ""
	if len(p.Routes) > 0 {
		pattern = p.Routes[0]
	}
	if b.policy, err = s.adapter.Bind(s.limiter, pattern, rules); err != nil {
		return fmt.Errorf("policy %q: %w", b.name, err)
	}
	texts := strings.Split(p.Rules.String(), "; ")
	for i, r := range p.Rules.Rules() {
		c := &ruleCount{name: r.Name, text: texts[min(i, len(texts)-1)], keys: newTop[string](max(1000, 10*o.Top)), key: syntaxOf(r.Key)}
		if !leases(r) {
			c.bit, c.leaves = s.present.bit(c.key), !bans(r)
		}
		b.values = append(b.values, c.key.Names(grammar.Path)...)
		b.watches = b.watches || r.Shadow != nil || r.OnRefusal.Mark
		b.rules = append(b.rules, c)
	}
	s.bound = append(s.bound, b)
	if len(p.Routes) == 0 {
		b.quotas = fmt.Sprintf("policy %d", len(s.bound))
		s.always = append(s.always, b)
	}
	for _, route := range p.Routes {
		if err := s.handle(route, b); err != nil {
			return fmt.Errorf("policy %q: %w", b.name, err)
		}
	}
	return nil
}

func leases(r limit.Rule) bool { _, ok := r.Algorithm.(limit.Concurrency); return ok }
func bans(r limit.Rule) bool   { _, ok := r.Algorithm.(limit.Ban); return ok }

// replayable returns a rule that can be decided from a log alone.
func replayable(r limit.Rule, notes *notes) limit.Rule {
	if leases(r) {
		notes.add("rule %q limits requests in flight, which a log does not show: it refuses nothing here", r.String())
		return limit.Rule{Name: r.Name, Key: limit.Everyone, Limit: 1e12, Window: time.Second, Algorithm: limit.FixedWindow{}, Hidden: true}
	}
	if r.Settle != (rules.Settlement{}) {
		notes.add("rule %q settles what requests cost, which is not replayed: it keeps what it charges", r.String())
		r.Settle = rules.Settlement{}
	}
	return withoutCallers(r, notes)
}

// withoutCallers returns a rule for requests without a plan and a class, which a log does
// not have.
func withoutCallers(r limit.Rule, notes *notes) limit.Rule {
	text := r.String()
	if len(r.Plans) > 0 {
		notes.add("rule %q has limits for plans, which a log does not show: its own limit applies to all requests", text)
		r.Plans = nil
	}
	if len(r.Reserve) > 0 {
		notes.add("rule %q reserves units for classes, which a log does not show: nothing is reserved", text)
		r.Reserve = nil
	}
	var exempt []string
	for _, entry := range r.Exempt {
		if kind, _, _ := strings.Cut(entry, " "); kind != "plan" && kind != "class" {
			exempt = append(exempt, entry)
		}
	}
	if len(exempt) < len(r.Exempt) {
		notes.add("rule %q exempts plans or classes, which a log does not show: it exempts none of them", text)
	}
	r.Exempt = exempt
	return r
}

// registered is a place in this file, which says nothing to users.
var registered = regexp.MustCompile(` \(registered at [^)]*\)`)

// handle adds a pattern to the mux, which panics if it does not take it.
func (s *side) handle(pattern string, b *bound) (err error) {
	defer func() {
		if problem := recover(); problem != nil {
			text, _, _ := strings.Cut(fmt.Sprint(problem), "\n")
			text = registered.ReplaceAllString(text, "")
			err = fmt.Errorf("route %q: %s: write a pattern of net/http once, such as POST /login or GET /items/{id}", pattern, text)
		}
	}()
	path := pattern
	if _, after, ok := strings.Cut(pattern, " "); ok {
		path = strings.TrimLeft(after, " \t")
	}
	s.hosts = s.hosts || !strings.HasPrefix(path, "/")
	s.mux.HandleFunc(pattern, func(_ http.ResponseWriter, r *http.Request) {
		s.found = match{pattern: r.Pattern, bound: []*bound{b}}
		for _, name := range b.values {
			if s.found.values == nil {
				s.found.values = make(map[string]string)
			}
			s.found.values[name] = r.PathValue(name)
		}
	})
	return nil
}

// nowhere drops the redirects and 404s of a mux.
type nowhere struct{ header http.Header }

func (w nowhere) Header() http.Header         { return w.header }
func (w nowhere) Write(p []byte) (int, error) { return len(p), nil }
func (w nowhere) WriteHeader(int)             {}

// match returns the policies of a place: those without routes, and that of the most
// specific pattern.
func (s *side) match(at *place) match {
	if len(s.always) == len(s.bound) {
		return match{bound: s.always}
	}
	s.found = match{}
	r := &http.Request{Method: at.method, URL: at.url, Host: at.host, RequestURI: at.url.RequestURI()}
	answer := nowhere{make(http.Header)}
	s.mux.ServeHTTP(answer, r)
	if clean, err := url.Parse(answer.header.Get("Location")); s.cleans && err == nil && len(s.found.bound) == 0 && clean.Path != "" {
		s.mux.ServeHTTP(nowhere{make(http.Header)}, &http.Request{Method: at.method, URL: clean, Host: at.host, RequestURI: clean.RequestURI()})
	}
	m := s.found
	m.bound = append(slices.Clone(s.always), m.bound...)
	return m
}

// An outcome is what a side decides about a request.
type outcome struct {
	retryAfter time.Duration
	refused    bool
	keyless    bool // refused by a rule whose key the request does not have
	barred     bool
	exempt     bool
	undecided  bool
}

// decideAll decides requests at their times.
func (s *side) decideAll(batch []event, number int, n needs) {
	s.outcomes = s.outcomes[:0]
	for i := range batch {
		e := &batch[i]
		s.outcomes = append(s.outcomes, s.decide(e, &e.place.matched[number], n.request(s.request, e)))
	}
}

// decide decides a request by the policies of its place, one after the other, until one
// refuses it.
func (s *side) decide(e *event, m *match, r *http.Request) (o outcome) {
	s.now, s.event = e.time, e
	for _, b := range m.bound {
		b.requests++
		if s.pattern, s.values = m.pattern, m.values; b.quotas != "" {
			s.pattern, s.values = b.quotas, nil
		}
		for _, c := range b.rules {
			c.noteKey(e)
		}
		d, err := s.adapter.Decide(b.policy, r, s, 0)
		if err != nil {
			return outcome{undecided: true}
		}
		switch d.Mode {
		case core.ModeExempt:
			o.exempt = true
			continue
		case core.ModeBarred:
			b.refused++
			return outcome{refused: true, barred: true, retryAfter: d.RetryAfter}
		case core.ModeOverflow:
			s.overflowed++
		}
		if d.Allowed && d.Delay > 0 {
			b.delayed++
		}
		if b.watches {
			b.watch(&d, e)
		}
		if !d.Allowed {
			return outcome{refused: true, keyless: b.refuse(&d, e), retryAfter: d.RetryAfter}
		}
	}
	return o
}

// refuse counts the rules that refuse a request, and the keys that they refuse. It
// reports whether the request does not have the key of one of them.
func (b *bound) refuse(d *limit.Decision, e *event) (keyless bool) {
	b.refused++
	refusing := d.Refusing()
	for _, name := range refusing {
		if c := b.rule(name); c != nil {
			c.refused++
			if len(refusing) == 1 {
				c.alone++
			}
			c.keys.add(keyOf(&c.key, e))
			keyless = keyless || c.bit != 0 && !has(&c.key, e)
		}
	}
	return keyless
}

func (b *bound) watch(d *limit.Decision, e *event) {
	for _, name := range d.Shadowed() {
		if c := b.rule(name); c != nil {
			c.shadowed++
			c.keys.add(keyOf(&c.key, e))
		}
	}
	for _, name := range d.Marked() {
		if c := b.rule(name); c != nil {
			c.marked++
		}
	}
}

func (b *bound) rule(name string) *ruleCount {
	for _, c := range b.rules {
		if c.name == name {
			return c
		}
	}
	return nil
}
