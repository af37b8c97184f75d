package rules

import (
	"maps"
	"slices"
	"time"

	"github.com/routelimit/limit/core"
)

// usualLease is how long a lease lives if its rule does not say it.
const usualLease = 30 * time.Second

// cloned returns a copy of rules that shares no map or list with them, in which each
// lease has a life.
func cloned(rules []Rule) []Rule {
	rules = slices.Clone(rules)
	for i := range rules {
		r := &rules[i]
		r.OnRefusal.Fallback = identified(r.OnRefusal.Fallback)
		if r.leases() && r.Window == 0 {
			r.Window = usualLease
		}
		if r.Shadow != nil {
			shadow := *r.Shadow
			r.Shadow = &shadow
		}
		r.Plans, r.Reserve, r.Exempt = maps.Clone(r.Plans), maps.Clone(r.Reserve), slices.Clone(r.Exempt)
	}
	return rules
}

// WithLimit returns r for a caller with another limit. What follows the limit by
// default follows this one.
func (r Rule) WithLimit(limit int64) Rule {
	bucket, ok := r.Algorithm.(TokenBucket)
	empty := r.empty()
	r.Limit = limit
	if burst := r.Quota().Burst; ok && (empty || bucket.Missing > burst) {
		bucket.Missing = burst
		r.Algorithm = bucket
	}
	return r
}

// Kept returns how many units of r a request leaves to the classes above its
// own. The reserves are of the usual capacity, and count in proportion to that of the
// caller. They leave room for one unit of it.
func (r *Rule) Kept(above []string, capacity int64) int64 {
	usual, sum := r.Quota(), int64(0)
	for _, class := range above {
		sum += r.Reserve[class]
	}
	whole, rest := core.MulDiv(sum, capacity, usual.Capacity())
	if rest > 0 {
		whole++
	}
	return min(whole, capacity-1)
}
