package livepage

import (
	"math"

	"github.com/routelimit/limit/ops/access"
	"github.com/routelimit/limit/ops/overrides"
	"github.com/routelimit/limit/ops/topkeys"
)

const shownKeys = 20

// keys returns who is limited: the keys with the most refusals, or those at or near their
// limits.
func (p *page) keys(t *totals, q query) []keyRow {
	of := query{policy: q.policy, order: q.order}
	top, ok := t.keys[of]
	if !ok {
		top = p.top(of)
		t.keys[of] = top
	}
	return rows(top, shownKeys, keysBytes, func(k *topkeys.Key) keyRow {
		row := keyRow{Policy: k.Policy, Rule: k.Rule, Kind: kindOf(t.rule(k.Policy, k.Rule)),
			Requests: int64(math.Round(k.Requests)), Refused: int64(math.Round(k.Refused)), Used: math.Round(k.Used*1000) / 1000,
			Remaining: k.Remaining, Capacity: k.Capacity, Last: k.Last.UnixMilli()}
		row.Key, row.ID = p.show(k.Key)
		return row
	})
}

// top returns the first keys of all policies, or of one.
func (p *page) top(of query) []topkeys.Key {
	order := topkeys.ByRefusals
	if of.order == "use" {
		order = topkeys.ByUse
	}
	return p.collector.top.TopOf(of.policy, order, shownKeys)
}

// lists adds the bans and overrides.
func (p *page) lists(s *state) {
	s.Bans, s.Overrides = []ban{}, []override{}
	if b := p.options.Bans; b != nil {
		list := b.List()
		s.BansTotal = len(list)
		s.Bans = rows(list, maxListed, listBytes, func(e *access.Ban) ban {
			row := ban{Entry: e.Entry, By: e.By, Reason: e.Reason, Until: unixMilli(e.Until)}
			if p.options.HideKeys {
				row.Entry, row.ID = "", p.banIDs.of(e.Entry)
			}
			return row
		})
	}
	if o := p.options.Overrides; o != nil {
		list := o.List()
		s.Overridden = len(list)
		s.Overrides = rows(list, maxListed, listBytes, func(e *overrides.Override) override {
			row := override{Policy: e.Policy, Rule: e.Rule, Limit: e.Limit, By: e.By, Reason: e.Reason, Until: unixMilli(e.Until)}
			row.Key, row.ID = p.show(e.Key)
			return row
		})
	}
}
