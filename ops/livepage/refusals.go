package livepage

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/grammar"
)

const (
	keptRefusals = 50
	keptRules    = 4   // of a refusal
	keptKey      = 128 // bytes of a key: resolvers hash longer ones
)

// refusals are the last refused requests. An entry has copies of keys in place, since a key may be
// part of a large header.
type refusals struct {
	mu      sync.Mutex
	last    int64 // number of the last one, from 1
	entries [keptRefusals]refusal
}

type refusal struct {
	number     int64
	since      time.Duration // since the collector began
	policy     string
	outcome    string
	mode       string
	retryAfter time.Duration
	banned     netip.Addr // of the client, if the request was refused by a ban
	rules      [keptRules]refusing
	count      int // of rules that refuse, which may be more
}

// A refusing is a rule that refused a request.
type refusing struct {
	limit.RuleDecision // without its Key
	key                [keptKey]byte
	keyLength          int
}

func (l *refusals) add(d *limit.Decision, since time.Duration, banned netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	e := &l.entries[l.last%keptRefusals]
	e.number, e.since, e.policy = l.last, since, d.Policy
	e.outcome, e.mode, e.retryAfter, e.banned, e.count = d.Outcome(), d.Mode.String(), d.RetryAfter, banned, 0
	for rule := range d.Rules() {
		if rule.Allowed || rule.Shadow || rule.Marked {
			continue
		}
		if e.count < keptRules {
			to := &e.rules[e.count]
			to.keyLength = copy(to.key[:], rule.Key)
			to.RuleDecision, to.Key = rule, ""
		}
		e.count++
	}
}

func (l *refusals) newest() []refusal {
	list := make([]refusal, 0, keptRefusals)
	l.mu.Lock()
	defer l.mu.Unlock()
	for n := l.last; n > 0 && n > l.last-keptRefusals; n-- {
		list = append(list, l.entries[n%keptRefusals])
	}
	return list
}

func (p *page) refusalRow(t *totals, r *refusal) refusalRow {
	row := refusalRow{Number: r.number, At: t.start.Add(r.since).UnixMilli(), Policy: r.policy, Outcome: r.outcome, Mode: r.mode,
		Rules: []refusedKey{}}
	var words []string
	for i := range r.rules[:min(r.count, keptRules)] {
		rule, declared := &r.rules[i], t.rule(r.policy, r.rules[i].Name)
		key := refusedKey{Name: rule.Name}
		key.Key, key.ID = p.show(declared, string(rule.key[:rule.keyLength]))
		row.Rules = append(row.Rules, key)
		words = append(words, rule.words(declared, cmp.Or(key.Key, key.ID)))
	}
	if more := r.count - keptRules; more > 0 {
		words = append(words, fmt.Sprintf("%d more rules refuse it.", more))
	}
	switch {
	case r.mode == core.ModeBarred.String():
		client := ""
		if r.banned.IsValid() {
			client = " " + cmp.Or(p.show(limit.Rule{}, r.banned.String()))
		}
		words = []string{"The client" + client + " is banned" + until(r.retryAfter) + "."}
	case r.mode == core.ModeRefused.String():
		words = []string{"The store is unavailable, and a rule says to refuse requests meanwhile."} // the rules may have room
	case len(words) == 0:
		words = []string{"No rule refused it by itself."}
	}
	row.Words = strings.Join(words, " ")
	return row
}

// rule returns the rule of a name, if the limiter still has it.
func (t *totals) rule(policy, name string) (found limit.Rule) {
	for _, set := range t.sets[policy] {
		for _, r := range set.Rules() {
			if r.Name == name {
				return r
			}
		}
	}
	return found
}

// words says why a rule refuses a request. Of a rule that is gone, the declared one is the zero
// Rule.
func (r *refusing) words(declared limit.Rule, key string) string {
	who := ""
	if key != "" {
		who = " for " + excerpt(key, 64)
	}
	again := ", and has room again in " + inWords(r.RetryAfter) + "."
	if r.RetryAfter == limit.Never {
		again = ", and can never have room for the request."
	}
	switch declared.Algorithm.(type) {
	case limit.Concurrency:
		return fmt.Sprintf("%s allows %d at once%s%s", r.Name, r.Limit, who, again)
	case limit.Distinct:
		return fmt.Sprintf("%s allows %d different values in %s%s%s", r.Name, r.Limit, inWords(r.Window), who, again)
	case limit.Ban:
		return fmt.Sprintf("%s bans %s%s.", r.Name, cmp.Or(excerpt(key, 64), "all requests"), until(r.RetryAfter))
	}
	return fmt.Sprintf("%s allows %d in %s%s%s", r.Name, r.Limit, inWords(r.Window), who, again)
}

func until(d time.Duration) string {
	if d == limit.Never {
		return " for good"
	}
	return " for another " + inWords(d)
}

// inWords returns a duration as rules write it, rounded up: "1m5s", "2d1h".
func inWords(d time.Duration) string {
	unit := time.Millisecond
	switch {
	case d > 24*time.Hour:
		unit = time.Hour
	case d > time.Hour:
		unit = time.Minute
	case d > 999*time.Millisecond:
		unit = time.Second
	}
	d = min(d, math.MaxInt64-unit)
	return grammar.FormatWindow((d + unit - 1) / unit * unit)
}

// excerpt cuts a text from a client to at most so many bytes.
func excerpt(text string, most int) string {
	if len(text) > most {
		for most > 0 && !utf8.RuneStart(text[most]) {
			most--
		}
		text = text[:most] + "…"
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}
