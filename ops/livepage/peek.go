package livepage

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/operate"
)

func (p *page) peek(r *http.Request) (found map[string]any, err error) {
	if err := sameOrigin(r); err != nil {
		return nil, err
	}
	v := r.URL.Query()
	a := &action{Policy: v.Get("policy"), Rule: v.Get("rule"), Key: v.Get("key"), ID: v.Get("id")}
	if err := p.resolve(a, "peek"); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), actionTimeout)
	defer cancel()
	d, err := operate.Peek(ctx, p.limiter, a.Policy, a.Rule, a.key, v.Get("plan"))
	if err != nil {
		return nil, p.shown(a, err)
	}
	stats := operate.ReadStats(p.limiter)
	found = map[string]any{"limit": d.Limit, "capacity": d.Capacity}
	if stats.Unavailable { // how full the quota is, is not known
		found["words"] = aloneWords(&d, a.rule.OnStoreError)
		return found, nil
	}
	found["remaining"], found["used"] = d.Remaining, round(usedShare(&d))
	found["words"] = peekWords(&d) + p.accountWords(ctx, a, v.Get("plan")) + doubtWords(&stats, a.rule, d.Window)
	return found, nil
}

// aloneWords says what the next request meets while the store is unavailable.
func aloneWords(d *limit.RuleDecision, on core.OnError) string {
	words := "The store is unavailable. Until it answers, "
	switch {
	case on == core.Allow:
		return words + "the rule admits every request."
	case on == core.Refuse:
		return words + "the rule refuses every request."
	case !d.Allowed:
		return words + "this instance alone decides, and refuses the next request."
	}
	return words + fmt.Sprintf("this instance alone decides, and admits %d more.", d.Remaining)
}

// doubtWords says why this instance may refuse what other instances admit.
func doubtWords(s *operate.Stats, of limit.Rule, window time.Duration) string {
	since := s.Doubted
	switch of.Algorithm.(type) {
	case limit.Concurrency, limit.Distinct, limit.Ban:
		if s.Lost.After(since) {
			since = s.Lost
		}
	}
	if time.Since(since) >= window {
		return ""
	}
	return " Until " + since.Add(window).UTC().Format(time.TimeOnly) + " UTC, this instance also refuses by its own counts, which the store may not know: others may admit the key."
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

func (p *page) accountWords(ctx context.Context, a *action, plan string) (words string) {
	of, err := operate.Account(ctx, p.limiter, a.Policy, a.Rule, a.key, plan)
	if err != nil {
		return " What the key owes and holds is not known, since the store failed."
	}
	if of.Owed > 0 {
		words += fmt.Sprintf(" The key owes %d units, and has none left until it has paid.", of.Owed)
	}
	if of.Holds > 0 {
		words += fmt.Sprintf(" Holds: %d, of %d units. The next ends in %s unless it is extended.", of.Holds, of.Held, inWords(core.Duration(of.Next)))
	}
	if of.Ended > 0 {
		words += fmt.Sprintf(" Ended and not given back yet: %d.", of.Ended)
	}
	return words
}
