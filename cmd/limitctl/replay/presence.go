package replay

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/routelimit/limit/cmd/limitctl/internal/words"
	"github.com/routelimit/limit/internal/grammar"
	"github.com/routelimit/limit/rules"
)

// A presence says which keys of rules the requests of a log have. A log that never has a
// user does not say that all requests come without one: it may just not record users. So
// a rule is left out until a request has its key: see docs/design/replay.md.
type presence struct {
	keys   map[string]*sought // by the text of the key
	unseen []*sought
}

// A sought is a key of a rule, or a part of a joined one.
type sought struct {
	key  grammar.Key
	seen bool // whether a record that was read has the key

	costs map[rules.Cost]rules.Cost // see leaveOut
}

// seek returns the entry of a key, or nil if its absence says nothing.
func (p *presence) seek(k grammar.Key) *sought {
	if k.Kind == 0 || k.Kind == grammar.Global { // 0 is a function, which decides what the value is
		return nil
	}
	for _, part := range k.Parts {
		p.seek(part)
	}
	text := k.String()
	if p.keys[text] == nil {
		p.keys[text] = &sought{key: k, costs: make(map[rules.Cost]rules.Cost)}
		p.unseen = append(p.unseen, p.keys[text])
	}
	return p.keys[text]
}

// read notes which keys a record has. It forgets those that were seen, since it reads each record.
func (p *presence) read(e *event) {
	p.unseen = slices.DeleteFunc(p.unseen, func(s *sought) bool {
		s.seen = has(&s.key, e)
		return s.seen
	})
}

// leaveOut returns a cost that is 0 for the requests until which no record had the key. It is the
// same for the same cost, since sets that several policies are with share their rules.
func (s *sought) leaveOut(cost rules.Cost) rules.Cost {
	if _, known := s.costs[cost]; !known {
		s.costs[cost] = rules.CostBy("units", func(r *http.Request) int64 {
			if !s.seen {
				return 0
			}
			return cost.Units(r)
		})
	}
	return s.costs[cost]
}

// noteKey counts a request without the key of a rule.
func (c *ruleCount) noteKey(e *event) {
	if c.sought == nil || has(&c.key, e) {
		return
	}
	c.NoKey++
	if c.leaves && !c.sought.seen {
		c.LeftOut++
	}
}

// explainKey adds notes on a rule whose key requests do not have.
func (r *run) explainKey(requests int64, c *ruleCount) {
	if c.sought == nil || requests == 0 {
		return
	}
	name := nameOf(&c.key)
	_, noun, _ := strings.Cut(name, " ") // without its article
	some := fmt.Sprintf("%s of %s requests have no %s and share one quota",
		words.Percent(c.NoKey, requests), words.Number(requests), noun)
	switch {
	case c.LeftOut == requests:
		r.notes.add("rule %q: none of %v requests has %s in this log, so the rule is left out, and its figures say "+
			"nothing; on a server, all requests without %s share one quota%s", c.Rule, requests, name, name, remedy(&c.key))
		return
	case c.NoKey == requests && !c.leaves:
		r.notes.add("rule %q: none of %v requests has %s in this log, so all of them share one ban%s",
			c.Rule, requests, name, remedy(&c.key))
	case c.LeftOut > 0:
		r.notes.add("rule %q: %s; the rule is left out for the first %v of them, before the first request with a key",
			c.Rule, some, c.LeftOut)
	case c.NoKey > 0:
		r.notes.add("rule %q: %s", c.Rule, some)
	}
	r.explainParts(&c.key, c)
}

// explainParts adds notes on the parts of a joined key that no request has.
func (r *run) explainParts(k *grammar.Key, c *ruleCount) {
	for i := range k.Parts {
		part := &k.Parts[i]
		if s := r.presence.seek(*part); s != nil && !s.seen && len(part.Parts) == 0 {
			r.notes.add("rule %q: no request has %s in this log, so the rule counts by the rest of its key%s",
				c.Rule, nameOf(part), remedy(part))
		}
		r.explainParts(part, c)
	}
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
