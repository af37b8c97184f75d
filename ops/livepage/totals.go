package livepage

import (
	"math"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
)

// total adds the counts to t, which has the sets of policies already.
func (c *collector) total(t *totals) {
	now, first := t.now, t.start.Unix()-1 // the time of second 0 of a ring
	s := &t.state
	s.Seconds = seconds{first + int64(now.second) - shownSeconds, make([]uint64, shownSeconds), make([]uint64, shownSeconds)}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, second := range c.seconds {
		if back := now.second - second.at; second.at != 0 && back >= 1 && back <= shownSeconds {
			s.Seconds.Admitted[shownSeconds-back] = uint64(second.admitted)
			s.Seconds.Refused[shownSeconds-back] = uint64(second.refused)
		}
	}
	s.Modes, s.ModeCounts = c.lastHour(now.slot, first+1-slotSeconds)
	for name, p := range c.policies {
		row := policyRow{Name: name}
		row.Admitted, row.Refused, row.Full = p.counts.sum(now.slot)
		t.rows = append(t.rows, row)
	}
	for name := range t.sets {
		if c.policies[name] == nil {
			t.rows = append(t.rows, policyRow{Name: name})
		}
	}
	admitted, refused, _ := c.unlisted.sum(now.slot)
	s.Policies.Unlisted = admitted + refused
	const last = 5 // seconds of the rates
	for i := shownSeconds - last; i < shownSeconds; i++ {
		s.Now.Admitted += float64(s.Seconds.Admitted[i]) / last
		s.Now.Refused += float64(s.Seconds.Refused[i]) / last
	}
}

func modeWord(mode int) string {
	if mode == undecided {
		return "undecided"
	}
	return core.Mode(mode).String()
}

// worst orders modes from the one that operators need least to see to the one that they
// need most to see: quotas that count, then outages, from strict to open.
var worst = []int{int(core.ModeExempt), int(core.ModeBarred), int(core.ModeExact), int(core.ModeRemembered), int(core.ModeOverflow),
	int(core.ModeLocal), int(core.ModeRefused), int(core.ModeAllowed), undecided}

// lastHour merges slots into periods of their worst modes, and counts the decisions of each mode in
// the last shownSlots. Slots without a decision are in no period. Slot 0 begins at from.
func (c *collector) lastHour(now uint32, from int64) ([]period, map[string]int64) {
	list, counts := []period{}, map[string]int64{}
	for slot := now - min(now, shownHour) + 1; slot <= now; slot++ {
		m, word := &c.modes[slot%keptHour], ""
		if m.at != slot {
			continue
		}
		for _, mode := range worst {
			if n := m.counts[mode]; n > 0 {
				word = modeWord(mode)
				if slot+shownSlots > now {
					counts[word] += int64(n)
				}
			}
		}
		begin := from + int64(slot)*slotSeconds
		if n := len(list); n > 0 && list[n-1].To == begin && list[n-1].Mode == word {
			list[n-1].To += slotSeconds
		} else {
			list = append(list, period{word, begin, begin + slotSeconds})
		}
	}
	return list, counts
}

// row completes a policy by its rules, in the order of declaration.
func (c *collector) row(t *totals, row policyRow) policyRow {
	row.Idle, row.Full, row.Spark, row.Rules = t.idle[row.Name], round(row.Full), make([][2]uint32, shownSlots), []ruleRow{}
	for _, set := range t.sets[row.Name] {
		for _, r := range set.Rules() {
			name := r.Name
			r.Name = "" // which often follows from the text
			row.Rules = append(row.Rules, ruleRow{Name: name, Text: r.String(), Shadow: r.Shadow != nil,
				Keyed: r.Key.String() != limit.Everyone.String(), Kind: kindOf(r)})
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.policies[row.Name]
	if p == nil {
		return row
	}
	if p.givenBack != nil {
		row.GivenBack, _, _ = p.givenBack.sum(t.now.slot)
	}
	for _, slot := range p.counts {
		if back := t.now.slot - slot.at; slot.at != 0 && back < shownSlots {
			row.Spark[shownSlots-1-back] = [2]uint32{slot.admitted, slot.refused}
		}
	}
	for i := range row.Rules {
		if u := p.rule(row.Rules[i].Name); u != nil {
			var full float32
			row.Rules[i].Admitted, row.Rules[i].Refused, full = u.counts.sum(t.now.slot)
			row.Rules[i].Full = round(full)
		}
	}
	return row
}

// kindOf says what the keys of a rule are: "ip", "user", "global" or "other".
func kindOf(r limit.Rule) string {
	switch key := r.Key.String(); key {
	case "ip", "user", "global":
		return key
	}
	return "other"
}

// round rounds a share to three digits. Only an empty quota is 1.
func round(share float32) float32 {
	if share >= 1 {
		return 1
	}
	return float32(math.Floor(float64(share)*1000) / 1000)
}
