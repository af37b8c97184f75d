package limit

import (
	"context"
	"fmt"

	"github.com/routelimit/limit/core"
)

// Reset makes the quotas of keys whole again, such as those of a user who has
// proved to be the one that was locked out. It takes the rules and keys that
// [Limiter.Take] takes. Rules that everyone shares stay as they are, and so do
// those of [Concurrency], whose holders go on.
//
// What was taken before does not come back a second time: settle no reservation
// of before the reset. It may be repeated; an error that wraps [ErrUndecided]
// says that the store failed, and that some of the rules may be reset already.
func (l *Limiter) Reset(ctx context.Context, rules RuleSet, keys Keys) error {
	p, err := l.bound(rules, keys)
	if err != nil {
		return err
	}
	from := keysSource{keys, l.options.Proxies.IPv6Prefix, 0}
	for i, rule := range p.set.rules {
		if rule.Key.kind == everyone || rule.Algorithm == core.Concurrency {
			continue
		}
		if err := l.store.Reset(ctx, p.named.policy, p.names[i], rule.Key.resolve(from)); err != nil {
			return fmt.Errorf("%w: reset of rule %q: %w", ErrUndecided, p.names[i], err)
		}
	}
	return nil
}
