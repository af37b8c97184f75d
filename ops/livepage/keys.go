package livepage

import (
	"cmp"
	"math"
	"slices"

	"github.com/routelimit/limit/ops/topkeys"
)

const shownKeys = 20

// keys returns who is limited: the keys with the most refusals, or those at or near their
// limits.
func (p *page) keys(t *totals, q query) keys {
	list := keys{Order: q.order, Rows: []keyRow{}}
	of := keyQuery{q.policy, q.order}
	top, ok := t.keys[of]
	if !ok {
		top = p.top(t, of)
		t.keys[of] = top
	}
	size := budget(keysBytes)
	for i := range top {
		k := &top[i]
		row := keyRow{Policy: k.Policy, Rule: k.Rule, Kind: kindOf(t.rule(k.Policy, k.Rule)),
			Requests: int64(math.Round(k.Requests)), Refused: int64(math.Round(k.Refused)), Used: math.Round(k.Used*1000) / 1000,
			Limit: k.Limit, Remaining: k.Remaining, Capacity: k.Capacity, Last: k.Last.UnixMilli()}
		row.Key, row.ID = p.show(k.Key)
		if !size.fits(row) {
			break
		}
		list.Rows = append(list.Rows, row)
	}
	return list
}

// top returns the first keys of all policies, or of one.
func (p *page) top(t *totals, of keyQuery) []topkeys.Key {
	order := topkeys.ByRefusals
	if of.order == "use" {
		order = topkeys.ByUse
	}
	if of.policy == "" {
		return p.collector.top.Top(order, shownKeys)
	}
	var list []topkeys.Key
	for _, set := range t.sets[of.policy] {
		for _, r := range set.Rules() {
			list = append(list, p.collector.top.TopOf(of.policy, r.Name, order, shownKeys)...)
		}
	}
	slices.SortStableFunc(list, func(a, b topkeys.Key) int {
		if order == topkeys.ByUse {
			return cmp.Or(cmp.Compare(b.Used, a.Used), cmp.Compare(b.Requests, a.Requests))
		}
		return cmp.Compare(b.Refused, a.Refused)
	})
	return list[:min(shownKeys, len(list))]
}

// lists adds the bans and overrides.
func (p *page) lists(s *state) {
	s.Bans, s.Overrides = []ban{}, []override{}
	if b := p.options.Bans; b != nil {
		size := budget(listBytes)
		for _, e := range b.List() {
			s.BansTotal++
			row := ban{By: e.By, Reason: e.Reason, Until: unixMilli(e.Until)}
			if row.Entry = e.Entry; p.options.HideKeys {
				row.Entry, row.ID = "", p.hash.id("ban", e.Entry)
			}
			if len(s.Bans) < maxListed && size.fits(row) {
				s.Bans = append(s.Bans, row)
			}
		}
	}
	if o := p.options.Overrides; o != nil {
		size := budget(listBytes)
		for _, e := range o.List() {
			s.Overridden++
			row := override{Policy: e.Policy, Rule: e.Rule, Limit: e.Limit, By: e.By, Reason: e.Reason, Until: unixMilli(e.Until)}
			row.Key, row.ID = p.show(e.Key)
			if len(s.Overrides) < maxListed && size.fits(row) {
				s.Overrides = append(s.Overrides, row)
			}
		}
	}
}
