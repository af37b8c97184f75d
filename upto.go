package limit

import "context"

// upToTries is how often TakeUpTo asks the store at most.
const upToTries = 4

// TakeUpTo takes as [Limiter.TakeN] does, but fewer than n units if there are
// not n: as many as all rules have room for, and at least one. It returns how
// many it took of each rule; a refusal takes none, and is about one unit: after
// its RetryAfter there is at least that. An n below 1 is an error.
//
// It asks the store for n, and after a refusal for what was left, which nearly
// always ends it. Each time it takes of every rule or of none, and so never more
// than there is. Where others take in between it asks once more for what is left
// then, and at last for one: so it takes fewer than it could have, but waits for
// nobody, and asks at most four times.
func (l *Limiter) TakeUpTo(ctx context.Context, rules RuleSet, keys Keys, n int64) (d Decision, taken int64, err error) {
	p, err := l.bound(rules, keys)
	if err != nil {
		return Decision{}, 0, err
	}
	if n < 1 {
		return Decision{}, 0, &RuleError{Problem: "take up to less than 1: write how many to take at most"}
	}
	for _, most := range p.most {
		n = min(n, most)
	}
	for try := 1; ; try++ {
		d, err := p.take(ctx, p.named, keysSource{keys, l.options.Proxies.IPv6Prefix, n})
		if err != nil {
			return Decision{}, 0, err
		}
		if d.Allowed || n == 1 {
			// A turn that is too late has been taken: it must not be tried again.
			if d, _ = d.late(ctx); d.Allowed {
				taken = n
			}
			return d, taken, nil
		}
		left := n - 1 // strictly fewer, whatever the store says
		for _, o := range d.core.Outcomes() {
			left = min(left, o.Remaining)
		}
		if n = max(1, left); try+1 >= upToTries {
			n = 1
		}
	}
}
