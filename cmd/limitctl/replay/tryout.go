package replay

import (
	"context"
	"strconv"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/rules"
)

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
