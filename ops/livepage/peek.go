package livepage

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/operate"
)

// peek answers with the state of a key of a rule.
func (p *page) peek(w http.ResponseWriter, r *http.Request, _ viewer) {
	if !sameOrigin(w, r) {
		return
	}
	v := r.URL.Query()
	a := &action{Policy: v.Get("policy"), Rule: v.Get("rule"), Key: v.Get("key"), ID: v.Get("id")}
	key, err := p.key(a)
	if err != nil {
		p.failed(w, a, err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), actionTimeout)
	defer cancel()
	d, err := operate.Peek(ctx, p.limiter, a.Policy, a.Rule, key, v.Get("plan"))
	if err != nil {
		p.failed(w, a, err)
		return
	}
	words := peekWords(&d)
	switch s := operate.ReadStats(p.limiter); {
	case s.Unavailable:
		words = "The store is unavailable, and this is what this instance alone decides. " + words
	case time.Since(s.Lost) < d.Window:
		words += " The store may have lost its data at " + s.Lost.UTC().Format(time.TimeOnly) + " UTC, so this instance also refuses by its own counts: others may admit the key."
	}
	used := float32(1)
	if d.Capacity > 0 {
		used = 1 - float32(d.Remaining)/float32(d.Capacity)
	}
	answer(w, http.StatusOK, map[string]any{"limit": d.Limit, "capacity": d.Capacity, "remaining": d.Remaining, "used": round(used), "words": words})
}

func peekWords(d *limit.RuleDecision) string {
	if d.Exempt {
		return "The rule exempts the caller."
	}
	words := fmt.Sprintf("%d of %d left.", d.Remaining, d.Capacity)
	switch {
	case !d.Allowed && d.RetryAfter == limit.Never:
		return words + " The next request is refused, and no wait helps."
	case !d.Allowed:
		return words + " The next request is refused. There is room again in " + inWords(d.RetryAfter) + "."
	case d.ResetAfter > 0:
		return words + " The quota is full again in " + inWords(d.ResetAfter) + " without requests."
	}
	return words + " The quota is unused."
}
