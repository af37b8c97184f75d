package livepage

// keys returns who is limited: the keys with the most refusals, or those at or near their
// limits.
func (p *page) keys(t *totals, q query) keys {
	return keys{Order: q.order, Rows: []keyRow{}}
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
