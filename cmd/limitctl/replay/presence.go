package replay

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/grammar"
)

// A presence says which keys of rules the requests of a log have. A log that never has a
// user does not say that all requests come without one: it may just not record users. So
// a rule is left out until a request has its key: see docs/design/replay.md.
type presence struct {
	keys []grammar.Key  // of rules, and the parts of joined ones
	bits map[string]int // the index in keys, by the text of a key
	seen uint64         // the keys that a record had until now
}

// maxPresence is how many keys have a bit. Rules by further keys are never left out.
const maxPresence = 64

// bit returns the bit of a key, or 0 if its absence says nothing.
func (p *presence) bit(k grammar.Key) uint64 {
	switch k.Kind {
	case 0, grammar.Global: // 0 is a function, which decides what the value is
		return 0
	}
	for _, part := range k.Parts {
		p.bit(part)
	}
	text := k.String()
	i, known := p.bits[text]
	if !known {
		if len(p.keys) == maxPresence {
			return 0
		}
		if p.bits == nil {
			p.bits = make(map[string]int)
		}
		i = len(p.keys)
		p.bits[text] = i
		p.keys = append(p.keys, k)
	}
	return 1 << i
}

// read notes the keys of a record.
func (p *presence) read(e *event) {
	for i := range p.keys {
		if p.seen&(1<<i) == 0 && has(&p.keys[i], e) {
			p.seen |= 1 << i
		}
	}
}

// leaveOut makes a rule cost nothing for the requests until which no record had its key.
// A ban costs nothing anyway, and stays.
func (s *side) leaveOut(r limit.Rule, bit uint64) limit.Rule {
	if bit == 0 || bans(r) {
		return r
	}
	cost := r.Cost
	r.Cost = limit.CostBy("units", func(request *http.Request) int64 {
		if s.event.seen&bit == 0 {
			return 0
		}
		return cost.Units(request)
	})
	return r
}

// noteKey counts a request without the key of a rule.
func (c *ruleCount) noteKey(e *event) {
	if c.bit == 0 || has(&c.key, e) {
		return
	}
	c.keyless++
	if c.leaves && e.seen&c.bit == 0 {
		c.leftOut++
	}
}

// explainKeys adds notes on rules whose keys requests do not have.
func (r *run) explainKeys() {
	for _, s := range r.sides {
		for _, b := range s.bound {
			for _, c := range b.rules {
				if c.bit != 0 && b.requests > 0 {
					r.explainKey(b, c)
				}
			}
		}
	}
}

func (r *run) explainKey(b *bound, c *ruleCount) {
	name := nameOf(&c.key)
	_, noun, _ := strings.Cut(name, " ") // without its article
	switch {
	case c.leftOut == b.requests:
		r.notes.add("rule %q: none of %v requests has %s in this log, so the rule is left out, and its figures say nothing; "+
			"on a server, all requests without %s share one quota%s", c.text, b.requests, name, name, remedy(&c.key))
	case c.keyless == b.requests && !c.leaves:
		r.notes.add("rule %q: none of %v requests has %s in this log, so all of them share one ban%s", c.text, b.requests, name, remedy(&c.key))
	case c.leftOut > 0:
		r.notes.add("rule %q: %s of %v requests have no %s and share one quota; the rule is left out for the first %v of them, before the first request with a key",
			c.text, percent(c.keyless, b.requests), b.requests, noun, c.leftOut)
	case c.keyless > 0:
		r.notes.add("rule %q: %s of %v requests have no %s and share one quota",
			c.text, percent(c.keyless, b.requests), b.requests, noun)
	}
	if c.leftOut == b.requests {
		return
	}
	for _, part := range leaves(&c.key) {
		if bit := r.presence.bit(*part); len(c.key.Parts) > 0 && r.presence.seen&bit == 0 && bit != 0 {
			r.notes.add("rule %q: no request has %s in this log, so the rule counts by the rest of its key%s", c.text, nameOf(part), remedy(part))
		}
	}
}

// leaves returns the keys in k that have no parts.
func leaves(k *grammar.Key) (list []*grammar.Key) {
	if len(k.Parts) == 0 {
		return []*grammar.Key{k}
	}
	for i := range k.Parts {
		list = append(list, leaves(&k.Parts[i])...)
	}
	return list
}

// nameOf returns a key as notes name it: "a user", "the header X-Api-Key".
func nameOf(k *grammar.Key) string {
	switch k.Kind {
	case grammar.User:
		return "a user"
	case grammar.IP:
		return "an address of a client"
	case grammar.And, grammar.Or:
		return fmt.Sprintf("a key (%s)", k)
	}
	return "the " + k.String()
}

// remedy says how a log gets a key.
func remedy(k *grammar.Key) string {
	switch k.Kind {
	case grammar.Header, grammar.Cookie:
		return ": log it, and name its field by --format"
	case grammar.User:
		return ": log the user of your application, since $remote_user of nginx is that of HTTP basic authentication"
	case grammar.Path:
		return ": give the rule a route with {" + k.Name + "}"
	}
	return ""
}

// percent writes a part of all requests. Only nothing is 0%, and only all is 100%.
func percent(part, whole int64) string {
	p := 100 * float64(part) / float64(whole)
	switch {
	case part == whole:
		return "100%"
	case p < 0.1:
		return "<0.1%"
	case p > 99.9:
		return ">99.9%"
	}
	return fmt.Sprintf("%.1f%%", p)
}
