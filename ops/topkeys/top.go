package topkeys

import (
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"slices"
	"time"
)

// least is the lowest count of refusals that is listed: a refusal is listed for 15 minutes.
const least = 0.05

// first returns the first n keys of some rules.
func (c *Counter) first(order Order, n int, rules []*rule) []Key {
	if n <= 0 {
		return nil
	}
	now := c.now().UnixMicro()
	before := byRefusals
	if order == ByUse {
		before = byUse
	}
	var list []Key
	var last *Key // of the first n so far: what comes after it is not in the list
	for _, r := range rules {
		known := len(list)
		list = r.keys(list, order, now)
		if last != nil {
			after := func(k Key) bool { return before(k, *last) >= 0 && len(list)/3 > n }
			list = list[:known+len(slices.DeleteFunc(list[known:], after))]
		}
		if len(list)/4 > n { // 4*n may overflow
			slices.SortFunc(list, before)
			list = list[:n]
			k := list[n-1]
			last = &k
		}
	}
	slices.SortFunc(list, before)
	list = slices.Clip(list[:min(n, len(list))])
	if c.options.Name != nil {
		for i := range list {
			list[i].Key = c.options.Name(list[i].Key)
		}
	}
	return list
}

// keys appends the keys to list that belong to an order. Times are in microseconds. Now is
// by the clock of this process, and that of Redis may differ by hours.
func (r *rule) keys(list []Key, order Order, now int64) []Key {
	r.mu.Lock()
	defer r.mu.Unlock()
	now -= r.ahead
	factor := r.aging.factor(now / 1e6)
	for _, e := range r.entries {
		refused := e.count[ByRefusals] * factor
		used := usedPart(e.remaining, e.capacity)
		if now >= e.reset {
			used = 0
		}
		if order == ByRefusals && refused < least || order == ByUse && used == 0 {
			continue
		}
		list = append(list, Key{
			Policy: r.policy, Rule: r.name, Key: e.key,
			Requests: max(e.requests*factor, refused), Refused: refused, Error: e.err[ByRefusals] * factor,
			Used: used, Limit: e.limit, Remaining: e.remaining, Capacity: e.capacity,
			Last: time.UnixMicro(e.last),
		})
		if e.until > now {
			list[len(list)-1].Until = time.UnixMicro(e.until + r.ahead)
		}
	}
	return list
}

func byRefusals(a, b Key) int {
	return cmp.Or(cmp.Compare(b.Refused, a.Refused), byName(a, b))
}

func byUse(a, b Key) int {
	return cmp.Or(cmp.Compare(b.Used, a.Used), cmp.Compare(b.Requests, a.Requests), byName(a, b))
}

func byName(a, b Key) int {
	return cmp.Or(b.Last.Compare(a.Last), cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Key, b.Key))
}

// Hashed returns a function for [Options].Name that shows keys as 12 characters: the beginning of
// their HMAC-SHA256 in base 32. A key has the same text wherever the secret is the same. An empty
// secret means a random one, so that the texts differ for each process. The key "" stays as it is.
func Hashed(secret []byte) func(key string) string {
	secret = slices.Clone(secret)
	if len(secret) == 0 {
		secret = make([]byte, 32)
		rand.Read(secret) // never fails
	}
	return func(key string) string {
		if key == "" {
			return ""
		}
		h := hmac.New(sha256.New, secret)
		h.Write([]byte(key))
		return base32.StdEncoding.EncodeToString(h.Sum(nil))[:12]
	}
}
