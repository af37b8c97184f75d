package livepage

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/typedkey"
	"github.com/routelimit/limit/operate"
	"github.com/routelimit/limit/ops/overrides"
	"github.com/routelimit/limit/ops/topkeys"
)

const (
	shownKeys = 20
	keysRules = 4 // of a key in a row
)

// keys returns the keys with the most refusals or use: one row for a client, whatever rules have it
// as a key.
func (p *page) keys(t *totals, q query) []keyRow {
	of := query{policy: q.policy, order: q.order}
	top, ok := t.keys[of]
	if !ok {
		order := topkeys.ByRefusals
		if q.order == "use" {
			order = topkeys.ByUse
		}
		top = p.collector.top.TopOf(q.policy, order, keysRules*shownKeys)
		t.keys[of] = top
	}
	type client struct{ per, key string }
	clientOf := func(k *topkeys.Key) client { return client{t.rule(k.Policy, k.Rule).Key.String(), k.Key} }
	all := map[client][]ruleOf{}
	top = slices.DeleteFunc(slices.Clone(top), func(k topkeys.Key) bool {
		of := clientOf(&k)
		all[of] = append(all[of], ruleOf{k.Policy, k.Rule})
		return len(all[of]) > 1
	})
	return rows(top, shownKeys, keysBytes, func(k *topkeys.Key) keyRow {
		of := clientOf(k)
		row := keyRow{Per: of.per, More: all[of][1:min(len(all[of]), keysRules+1)], Policy: k.Policy, Rule: k.Rule, Kind: kindOf(t.rule(k.Policy, k.Rule)),
			Requests: int64(math.Round(k.Requests)), Refused: int64(math.Round(k.Refused)), Used: math.Round(k.Used*1000) / 1000,
			Remaining: k.Remaining, Capacity: k.Capacity, Last: k.Last.UnixMilli()}
		row.Key, row.ID = p.show(t.rule(k.Policy, k.Rule), k.Key)
		return row
	})
}

func (p *page) lists(t *totals) {
	s := &t.state
	s.Overrides = []override{}
	banned := p.bannedByRules(t)
	s.BansTotal = len(banned)
	banned = banned[:min(len(banned), maxListed/2)]
	if b := p.options.Bans; b != nil {
		byHand := b.List()
		s.BansTotal += len(byHand)
		for _, e := range byHand {
			row := ban{Entry: e.Entry, By: e.By, Reason: e.Reason, Until: unixMilli(e.Until)}
			if p.options.HideKeys {
				row.Entry, row.ID = "", p.banIDs.of(e.Entry)
			}
			banned = append(banned, row)
		}
	}
	s.Bans = rows(banned, maxListed, listBytes, func(b *ban) ban { return *b })
	if o := p.options.Overrides; o != nil {
		list := o.List()
		s.Overridden = len(list)
		s.Overrides = rows(list, maxListed, listBytes, func(e *overrides.Override) override {
			row := override{Policy: e.Policy, Rule: e.Rule, Pattern: e.Pattern != "", Limit: e.Limit, By: e.By, Reason: e.Reason, Until: unixMilli(e.Until)}
			row.Key, row.ID = p.show(t.rule(e.Policy, e.Rule), cmp.Or(e.Pattern, e.Key))
			return row
		})
	}
}

// bannedByRules returns the keys that rules of limit.Ban have refused here and still ban.
func (p *page) bannedByRules(t *totals) (list []ban) {
	lifted := map[bannedKey]time.Time{} // those that have sent nothing since
	defer func() { p.states.lifted = lifted }()
	for _, policy := range slices.Sorted(maps.Keys(t.sets)) {
		if !slices.ContainsFunc(t.sets[policy], func(set limit.RuleSet) bool { return slices.ContainsFunc(set.Rules(), isBan) }) {
			continue
		}
		for _, k := range p.collector.top.TopOf(policy, topkeys.ByRefusals, trackedKeys) {
			if k.Until.IsZero() || !isBan(t.rule(policy, k.Rule)) {
				continue
			}
			of := bannedKey{policy, k.Rule, k.Key}
			if p.states.lifted[of].Equal(k.Last) {
				lifted[of] = k.Last
				continue
			}
			b := ban{Policy: policy, Rule: k.Rule, Until: k.Until.UnixMilli()}
			b.Key, b.ID = p.show(t.rule(policy, k.Rule), k.Key)
			list = append(list, b)
		}
	}
	return list
}

func (p *page) lift(of bannedKey) {
	p.states.mu.Lock()
	defer p.states.mu.Unlock()
	for _, k := range p.collector.top.TopOf(of.policy, topkeys.ByRefusals, trackedKeys) {
		if k.Rule == of.rule && k.Key == of.key && !k.Until.IsZero() {
			p.states.lifted[of] = k.Last
		}
	}
}

type bannedKey struct{ policy, rule, key string }

func isBan(r limit.Rule) bool {
	_, ban := r.Algorithm.(limit.Ban)
	return ban
}

// maxIDs is how many ids find their key: more than one state shows.
const maxIDs = 4096

// ids stand for texts that are not shown, such as hidden keys. They are made with a secret of their
// own, so that nobody finds an address or a user by trying all of them. At least the last maxIDs
// that were shown find their text again.
type ids struct {
	id           func(text string) string
	mu           sync.Mutex
	newer, older map[string]string // texts by id
}

func newIDs() *ids { return &ids{id: topkeys.Hashed(nil), newer: map[string]string{}} }

// of returns the id of a text: 12 letters and digits.
func (i *ids) of(text string) string {
	id := i.id(text)
	i.mu.Lock()
	defer i.mu.Unlock()
	if _, known := i.newer[id]; !known {
		if len(i.newer) == maxIDs {
			i.older, i.newer = i.newer, map[string]string{}
		}
		i.newer[id] = text
	}
	return id
}

// find returns the text of an id that was shown.
func (i *ids) find(id string) (text string, ok bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if text, ok = i.newer[id]; !ok {
		text, ok = i.older[id]
	}
	return text, ok
}

// show returns a key of a rule as viewers see it, or its id instead, which is one in all policies, so
// that a client is recognized. A key that is not text has both, since JSON cannot carry it back.
func (p *page) show(r limit.Rule, key string) (shown, id string) {
	switch {
	case key == "":
		return "", ""
	case p.options.HideKeys:
		return "", p.keyIDs.of(key)
	case !utf8.ValidString(key):
		id = p.keyIDs.of(key)
	}
	return p.text(r, key), id
}

// text returns a key of a rule as people read it, or as it is if the limiter has no such rule.
func (p *page) text(r limit.Rule, key string) string {
	form, _ := typedkey.Of(&r, operate.Proxies(p.limiter).IPv6Prefix)
	return strings.ToValidUTF8(form.Shown(key), "\uFFFD")
}
