package limit_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/adapter"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/operate"
	"github.com/routelimit/limit/rules"
)

// A reused is what TestReused sends: requests with one key of their own, one after the other, to sets
// around each other.
type reused struct {
	options int       // see newReusing
	sets    [3]string // from the outermost; "" for none
	via     [3]string // how each of them is called
	pattern string
	plan    string
	cost    int // of each rule by the request; invalid below 0
	times   int
	does    string // what the handler does
	marks   string // for functions of the options
}

// A reusing is a limiter whose sets decide all requests of TestReused, or one.
type reusing struct {
	limiter  *limit.Limiter
	policies map[string]*limit.Policy
	met      sync.Map // by key, the *transcript of the requests
	late     sync.WaitGroup
}

// A transcript is what the program, the handler and the client see of requests with one key.
type transcript struct {
	key string
	mu  sync.Mutex
	strings.Builder
}

func (s *transcript) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s, format+"\n", args...)
}

var reusedSets = []string{"few", "many", "each", "base", "with", "gentle", "settles", "waits", "queue", "marked", "redirect", "changed", "ban"}

func newReusing(t *testing.T, options int) *reusing {
	s := &reusing{policies: make(map[string]*limit.Policy)}
	o := &limit.Options{Log: slog.New(slog.DiscardHandler), Headers: limit.Draft11 | limit.XRateLimit | limit.OpenAI, Observe: s.observe}
	has := func(r *http.Request, mark string) bool { return strings.Contains(r.Header.Get("Marks"), mark) }
	switch options {
	case 1:
		o.Exempt = func(c limit.Client) bool { return has(c.Request, "exempt") }
		o.Bar = func(c limit.Client) time.Duration {
			if has(c.Request, "bar") {
				return time.Minute
			}
			return 0
		}
	case 2:
		o.Classes = []string{"high", "default", "low"}
		o.Caller.Class = func(r *http.Request) string { return r.Header.Get("Class") }
		o.Override = func(_, rule, key string) int64 {
			if strings.HasPrefix(key, "vip") && rule != "c" {
				return 7
			}
			return 0
		}
	case 3:
		o.Headers = limit.NoHeaders
		o.Refuse = func(w http.ResponseWriter, _ *http.Request, d limit.Decision) { fmt.Fprint(w, "{", d.Message, "}") }
	}
	o.Caller.Plan = func(r *http.Request) string { return r.Header.Get("Plan") }
	s.limiter = limit.New(nil, o)
	cost := rules.CostBy("units", func(r *http.Request) int64 {
		n, _ := strconv.ParseInt(r.Header.Get("Cost"), 10, 64)
		return n
	})
	rule := func(name string, limited int64, more ...func(*limit.Rule)) limit.Rule {
		r := limit.Rule{Name: name, Key: limit.ByHeader("Key"), Limit: limited, Window: time.Hour, Cost: cost, Message: "no more " + name}
		for _, f := range more {
			f(&r)
		}
		return r
	}
	refusal := func(refusal limit.Refusal) func(*limit.Rule) {
		return func(r *limit.Rule) { r.OnRefusal = refusal }
	}
	base := limit.Named("base", rule("base", 4))
	for _, set := range []limit.RuleSet{
		base,
		limit.Named("few", rule("a", 5), rule("b", 6, func(r *limit.Rule) { r.Algorithm = limit.TokenBucket{Burst: 8} })),
		limit.Named("many", rule("m1", 5), rule("m2", 9, func(r *limit.Rule) { r.Shadow = &rules.Shadow{} }),
			rule("m3", 6, func(r *limit.Rule) { r.Plans = map[string]int64{"gold": 12} }), rule("m4", 7, func(r *limit.Rule) { r.Hidden = true }),
			rule("m5", 8, func(r *limit.Rule) { r.Exempt = []string{"plan free"} }), rule("m6", 9)),
		limit.EachRoute(rule("e", 4), rule("f", 6)),
		limit.Named("with", rule("w", 5)).With(base),
		limit.Named("gentle", rule("g", 2, refusal(limit.Refusal{Degrade: true}))),
		limit.Named("settles", rule("s", 5, func(r *limit.Rule) { r.Settle = rules.OnStatus(500) }),
			limit.Rule{Name: "c", Key: limit.ByHeader("Key"), Limit: 2, Window: time.Minute, Algorithm: limit.Concurrency{}}),
		limit.Named("waits", rule("wait", 2, func(r *limit.Rule) {
			r.Window, r.OnRefusal = time.Second, limit.Refusal{Wait: 3 * time.Second}
		})),
		limit.Named("queue", rule("q", 2, func(r *limit.Rule) { r.Window, r.Algorithm = time.Second, limit.Queue{Burst: 2} })),
		limit.Named("marked", rule("m", 2, refusal(limit.Refusal{Mark: true}))),
		limit.Named("redirect", rule("r", 3, refusal(limit.Refusal{Redirect: "/elsewhere"}))),
		limit.Named("changed", rule("x1", 3)).Overridable(),
		limit.Named("ban", rule("l", 3), limit.Rule{Name: "ban", Key: limit.ByHeader("Key"), Limit: 2, Window: time.Hour, Algorithm: limit.Ban{Bar: time.Hour}}),
	} {
		name := set.Name()
		if name == "" {
			name = "each"
		}
		p := must.Get(s.limiter.Policy(set))(t)
		s.policies[name] = p
	}
	return s
}

// change gives a policy rules that it does not have, or had, with more outcomes.
func (s *reusing) change(t *testing.T, changed bool) {
	var sets []limit.RuleSet
	if changed {
		var list []limit.Rule
		for i := range 5 {
			list = append(list, limit.Rule{Name: fmt.Sprint("x", 1+i), Key: limit.ByHeader("Key"), Limit: 2 + int64(i), Window: time.Hour,
				Message: "changed", Cost: rules.CostBy("one", func(*http.Request) int64 { return 1 })})
		}
		sets = append(sets, limit.Named("changed", list...))
	}
	assert.NoError(t, operate.Change(s.limiter, sets...))
}

func (s *reusing) observe(r *http.Request, d limit.Decision, err error) {
	met, ok := s.met.Load(r.Header.Get("Key"))
	if !ok {
		panic("a decision on another request")
	}
	met.(*transcript).say("observed %s %v", met.(*transcript).text(d), err)
}

// text describes a decision, but for its time.
func (s *transcript) text(d limit.Decision) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%q %v %v %v %v %v %q %v %v %d %v", d.Policy, d.Allowed, d.Mode, d.Outcome(), d.GivenBack, d.RetryAfter, d.Message,
		d.Waited, d.Delay, d.Taken, d.Lost() != nil)
	for r := range d.Rules() {
		fmt.Fprintf(&b, " %+v", r)
	}
	if o, ok := d.Outer(); ok {
		fmt.Fprintf(&b, " in (%s)", s.text(o))
	}
	return strings.ReplaceAll(b.String(), s.key, "KEY")
}

// A visit is the context of a framework.
type visit struct {
	w    http.ResponseWriter
	next http.Handler
	r    *http.Request
}

func newVisits(method string) *adapter.Adapter[*visit] {
	return &adapter.Adapter[*visit]{
		Route:  func(v *visit) (string, string) { return method, v.r.Pattern },
		Record: func(v *visit) *adapter.Recorder { r := adapter.Record(v.w); v.w = r.Writer(); return r },
		Next: func(v *visit, r *http.Request) (int, error) {
			v.next.ServeHTTP(v.w, r)
			return 200, nil
		},
	}
}

var visits = map[string]*adapter.Adapter[*visit]{"get": newVisits("GET"), "post": newVisits("POST")}

// behind returns a handler that a set decides about before next.
func (s *reusing) behind(met *transcript, set, via string, next http.Handler) http.Handler {
	p := s.policies[set]
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given := limit.Request{Cost: 1}
		switch via {
		case "":
			p.Handler(next).ServeHTTP(w, r)
			return
		case "get", "post":
			err := visits[via].Serve(p, w, r, &visit{w, next, r})
			if refused := (*limit.RefusedError)(nil); errors.As(err, &refused) {
				met.say("%s: %s", via, met.text(refused.Decision))
				s.late.Go(func() {
					text := met.text(refused.Decision)
					time.Sleep(time.Millisecond)
					if again := met.text(refused.Decision); again != text {
						panic("an error has changed from " + text + " to " + again)
					}
				})
			} else if err != nil {
				met.say("%s: %v", via, err)
			}
			return
		case "decide":
			d, err := visits["get"].Decide(p, r, &visit{w, next, r}, 2)
			met.say("decided %s %v", met.text(d), err)
			if err == nil {
				defer d.Release()
				next.ServeHTTP(w, r)
			}
			return
		case "settle":
			given = limit.Request{Cost: 2, Settle: true}
		case "dear":
			given = limit.Request{Cost: 50}
		case "hold":
			given = limit.Request{Cost: 3, Hold: time.Minute}
		}
		if err := p.Serve(w, r, given, next); err != nil {
			met.say("given: %v", err)
		}
	})
}

// run sends the requests, and returns the transcript.
func (s *reusing) run(k *reused, key string) string {
	met := &transcript{key: key}
	s.met.Store(key, met)
	var handler http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.handle(met, k, w, r) })
	for i, set := range slices.Backward(k.sets[:]) {
		if set != "" {
			handler = s.behind(met, set, k.via[i], handler)
		}
	}
	for range k.times {
		r := httptest.NewRequestWithContext(context.Background(), "GET", "/", nil)
		r.Pattern = k.pattern
		for name, value := range map[string]string{"Key": key, "Plan": k.plan, "Class": k.plan, "Cost": fmt.Sprint(k.cost), "Marks": k.marks} {
			r.Header.Set(name, value)
		}
		w := httptest.NewRecorder()
		func() {
			defer func() {
				if p := recover(); p != nil {
					met.say("panic: %v", p)
				}
			}()
			handler.ServeHTTP(w, r)
		}()
		met.say("%d %v %s", w.Code, w.Header(), w.Body)
	}
	met.mu.Lock()
	defer met.mu.Unlock()
	return met.String()
}

func (s *reusing) handle(met *transcript, k *reused, w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	if r.Header.Get("Key") != met.key {
		panic("another request")
	}
	if !strings.Contains(k.does, "blind") {
		d := limit.DecisionFrom(ctx)
		text := met.text(d)
		met.say("handled %s", text)
		if strings.Contains(k.does, "late") {
			s.late.Go(func() {
				time.Sleep(time.Millisecond)
				if _, is := d.Outer(); is && met.text(d) != text { // else the outer outcome
					panic("a decision has changed from " + text + " to " + met.text(d))
				}
				limit.DecisionFrom(ctx)
			})
		}
		switch {
		case strings.Contains(k.does, "use"):
			costs := make(map[string]int64)
			for rule := range d.Rules() {
				costs[rule.Name] = 3
			}
			met.say("%v", d.Use(ctx, costs))
		case strings.Contains(k.does, "settle"):
			met.say("%v", d.Settle(ctx, 1))
		}
	}
	if strings.Contains(k.does, "asks") {
		s.late.Go(func() {
			for range 20 {
				limit.DecisionFrom(ctx)
			}
		})
	}
	switch {
	case strings.Contains(k.does, "sleep"):
		time.Sleep(2 * time.Millisecond)
	case strings.Contains(k.does, "panic"):
		panic("handler")
	case strings.Contains(k.does, "fails"):
		w.WriteHeader(500)
	}
}

func someReused(random *rand.Rand) (k reused) {
	one := func(list ...string) string { return list[random.IntN(len(list))] }
	k.options = random.IntN(4)
	sets := slices.Clone(reusedSets)
	random.Shuffle(len(sets), func(i, j int) { sets[i], sets[j] = sets[j], sets[i] })
	k.times = 1 + random.IntN(3)
	for i := range 1 + random.IntN(3) {
		k.sets[i] = sets[i]
		if k.via[i] = one("", "", "get", "post", "decide", "settle", "hold", "cost", "dear"); sets[i] == "changed" {
			k.times = 1
		}
	}
	k.pattern = one("/a", "/b")
	k.plan = one("", "gold", "free", "high", "low")
	k.cost = []int{1, 1, 1, 2, 3, 50, 0, -1}[random.IntN(8)]
	k.does = one("", "blind", "late", "asks", "blind asks", "use", "settle", "use late", "panic", "fails", "sleep", "late sleep", "blind sleep asks")
	k.marks = one("", "", "", "exempt", "bar")
	return k
}

// TestReused sends requests of all kinds at once to limiters, which use their layers, runs and
// decisions again: each must look as the first that a limiter decides.
func TestReused(t *testing.T) {
	kinds, each := 120, 6
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(rand.Uint64(), 0))
		var list []reused
		var want [][]string
		for range kinds {
			k := someReused(random)
			list = append(list, k)
			var texts []string
			for _, changed := range []bool{false, true} {
				first := newReusing(t, k.options)
				first.change(t, changed)
				texts = append(texts, first.run(&k, fmt.Sprintf("vip%06d", 0)))
				first.late.Wait()
			}
			want = append(want, texts)
		}
		var shared []*reusing
		for options := range 4 {
			shared = append(shared, newReusing(t, options))
		}
		var clients sync.WaitGroup
		for c := range 8 {
			random := rand.New(rand.NewPCG(random.Uint64(), 1))
			clients.Go(func() {
				for n := range kinds * each / 8 {
					i := random.IntN(kinds)
					k := &list[i]
					s := shared[k.options]
					if n%16 == 0 {
						s.change(t, random.IntN(2) == 0)
					}
					if got := s.run(k, fmt.Sprintf("vip%06d", 1+c*100_000+n)); !slices.Contains(want[i], got) {
						t.Errorf("%+v:\n%s\nwant\n%s", *k, got, want[i][0])
						return
					}
				}
			})
		}
		clients.Wait()
		for _, s := range shared {
			s.late.Wait()
		}
	})

}
