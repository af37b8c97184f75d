package storetest

import "github.com/routelimit/limit/core"

// counts reports whether the units of an algorithm count for others.
func counts(a core.Algorithm) bool {
	q := core.Quota{Algorithm: a}
	return q.Spends() && !q.Leases()
}

// come notes that a version meets a request. A version of an algorithm that the key does not
// know counts only what comes later. A key that one algorithm has charged may be new when
// another one comes, or else knows only that one from then on.
func (v *versions) come(version int) {
	l := v.alone[version]
	alike := func(other *lone) bool { return other.quota.Algorithm.Alike(l.quota.Algorithm) }
	if v.last == nil || !alike(v.last) {
		tallies, known := false, false // the key forgets them when one algorithm alone has charged it for long
		for _, other := range v.alone[:len(v.quotas)] {
			if other.known = other.known && v.now-other.came < hour && v.now-v.turned < hour; other.known {
				tallies, known = true, known || alike(other)
			}
		}
		comes := tallies || v.last != nil && v.counts(v.last) // for certain, to a key that knows another one
		for _, other := range v.alone[:len(v.quotas)] {
			if !tallies || alike(other) && !known {
				other.met = 0
			}
			other.known = other.known || comes && alike(other)
		}
		v.turned = v.now
	}
	for _, other := range v.alone[:len(v.quotas)] {
		if alike(other) {
			other.came = v.now
		}
	}
	v.last = l
}

// counts reports whether the last unit surely counts for an algorithm.
func (v *versions) counts(l *lone) bool {
	if len(v.taken) == 0 || l.quota.Algorithm == core.FixedWindow {
		return false
	}
	for _, other := range v.alone[:len(v.quotas)] {
		q, span := &other.quota, other.quota.Window
		if q.Refills() {
			span /= q.Limit
		}
		if q.Algorithm.Alike(l.quota.Algorithm) && v.now-v.taken[len(v.taken)-1].at >= span {
			return false
		}
	}
	return true
}
