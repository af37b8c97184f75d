package livepage

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"strings"
	"unicode/utf8"

	"github.com/routelimit/limit/ops/topkeys"
)

// A hash makes ids of keys, with a secret of its own, so that nobody finds an address or
// a user by trying all of them.
type hash struct{ secret [32]byte }

func newHash() *hash {
	h := &hash{}
	_, _ = rand.Read(h.secret[:]) // it never fails
	return h
}

// id returns 16 letters and digits: 80 bits.
func (h *hash) id(parts ...string) string {
	mac := hmac.New(sha256.New, h.secret[:])
	for _, part := range parts {
		mac.Write([]byte(part))
		mac.Write([]byte{0})
	}
	return strings.ToLower(base32.StdEncoding.EncodeToString(mac.Sum(nil)[:10]))
}

// show returns a key as viewers see it, or its id instead. The same key has one id in all
// policies, so that a client is recognized. A key that is not text has both, since JSON
// cannot carry it back.
func (p *page) show(key string) (shown, id string) {
	switch {
	case key == "":
		return "", ""
	case p.options.HideKeys:
		return "", p.hash.id("key", key)
	case !utf8.ValidString(key):
		return strings.ToValidUTF8(key, "\uFFFD"), p.hash.id("key", key)
	}
	return key, ""
}

// find returns the key of the id of an action, if it is one that the page can show now. It
// looks at all rules in the end, since an operator can look at a client of one rule in
// another one.
func (p *page) find(a *action) (key string, ok bool) {
	is := func(candidate string) bool {
		if !ok && candidate != "" && p.hash.id("key", candidate) == a.ID {
			key, ok = candidate, true
		}
		return ok
	}
	for _, order := range orders {
		for _, k := range p.collector.top.TopOf(a.Policy, a.Rule, order, trackedKeys*2) {
			if is(k.Key) {
				return key, true
			}
		}
	}
	newest, _ := p.collector.refusals.newest()
	for i := range newest {
		r := &newest[i]
		for j := range r.rules[:min(r.count, keptRules)] {
			if is(r.rules[j].keyText()) {
				return key, true
			}
		}
	}
	if o := p.options.Overrides; o != nil {
		for _, e := range o.List() {
			if is(e.Key) {
				return key, true
			}
		}
	}
	p.finding.Lock() // one at a time: it takes up to some tens of milliseconds, and megabytes
	defer p.finding.Unlock()
	for _, order := range orders {
		for _, k := range p.collector.top.Top(order, 2*trackedKeys*trackedRules) {
			if is(k.Key) {
				return key, true
			}
		}
	}
	return "", false
}

var orders = [...]topkeys.Order{topkeys.ByRefusals, topkeys.ByUse}
