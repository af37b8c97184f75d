// Package overrides raises or lowers the limits of single keys, or of all keys that begin with a
// text, while a program runs: one customer's limit for a day, for example. All instances on one
// Redis share them.
//
//	rules := limit.Named("api", limit.PerUser(time.Hour, 1000), limit.PerIP(time.Minute, 60))
//	o := overrides.New(ctx, control.New(client, nil), &overrides.Options{
//		Rules: func(policy, rule string) bool {
//			return policy == "api" && slices.ContainsFunc(rules.Rules(), func(r limit.Rule) bool { return r.Name == rule })
//		},
//	})
//	limiter := limit.New(store, &limit.Options{Override: o.Limit})
//	api, err := limiter.Policy(rules)
//	…
//	key, err := operate.Key(api, "per-user-1h", map[string]string{"user": "alice"})
//	more := overrides.Override{Policy: "api", Rule: "per-user-1h", Key: key, Limit: 5000}
//	err = o.Set(ctx, more, 24*time.Hour, "bob")
//
// Take the key from operate.Key: the key of an IPv6 client, for example, is its /64.
//
// Decisions look up overrides in memory, so each is still one call to the store. A change reaches
// each instance within a second. While Redis is unavailable, the known overrides stay in force
// until they end; see package control.
package overrides

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/notice"
	"github.com/routelimit/limit/ops/control"
)

// Options configures [Overrides]. The zero Options is ready to use.
type Options struct {
	// Rules reports whether a policy has a rule, so that [Overrides.Set] refuses an
	// override that no request would use. Nil means that Set does not check.
	Rules func(policy, rule string) bool

	// Log receives a line when Redis has overrides that this program cannot read, such
	// as those of a newer version. The code is LIMIT-408. Nil means [slog.Default].
	Log *slog.Logger
}

// Overrides are limits of single keys and of patterns. Make them with [New]. They are safe for
// concurrent use.
type Overrides struct {
	options Options
	control *control.Control
	known   atomic.Pointer[known]
	invalid int // overrides that could not be read, when they were read last
}

// An Override is the limit of a key of a rule, or of each key that a pattern matches.
type Override struct {
	Policy string // as limit.Decision.Policy names it: "api", or the route "POST /update"
	Rule   string // the name of the rule
	Key    string // as operate.Key returns it; a star in it is a star

	// Pattern, if not empty, stands in place of Key: "free-*" gives the limit to each key that
	// begins with "free-". The override of a Key comes first, then that of the longest pattern. A
	// pattern is only as safe as its keys: a client that chooses a key chooses its limit. Keys of
	// more than 128 bytes are hashes, which no pattern matches: a client with such a key has the
	// limit of the rule, also if that is the larger one.
	Pattern string

	Limit int64 // units a window, from 1

	// Reason is why, in up to 1,000 bytes.
	Reason string

	// Set ignores these.
	Until time.Time // by the clock of this process; the zero Time if it does not end
	By    string    // who set it
	At    time.Time // when, by the clock of Redis
}

const (
	kind      = "overrides"
	maxReason = 1000
)

// New returns the overrides of a Control, and follows them until ctx ends. Nil options mean the
// zero Options. If Redis is unavailable, there are none until it is back, which the Control logs.
func New(ctx context.Context, c *control.Control, options *Options) *Overrides {
	o := &Overrides{options: *cmp.Or(options, new(Options)), control: c}
	o.known.Store(new(known))
	if err := c.Watch(ctx, kind, o.apply); err != nil {
		panic(err) // the kind is valid
	}
	return o
}

// Read returns the overrides that a Control has now, and does not follow them. It is for
// commands: it waits for a slow Redis, and returns an error if Redis cannot be read.
func Read(ctx context.Context, c *control.Control, options *Options) (*Overrides, error) {
	documents, err := c.Read(ctx, kind)
	if err != nil {
		return nil, err
	}
	o := &Overrides{options: *cmp.Or(options, new(Options)), control: c}
	o.apply(documents)
	return o, nil
}

// Set gives a key or a pattern a limit for a duration, and replaces the override that it has. An
// override for limit.Never, the longest Duration, does not end. by says who sets it.
//
// The limit takes the place of limit.Rule.Limit. One that is too large for the algorithm counts as
// the largest that it allows. To refuse all requests of a client, see package access.
//
// Set cannot know whether requests have such a key, but refuses an IPv6 address for a rule with the
// default name of a rule by address, such as per-ip-1m: its keys are prefixes. It refuses names
// that [Options].Rules does not know.
//
// An error is about the arguments, or about Redis; then the override may have been set. Set may be
// repeated.
func (o *Overrides) Set(ctx context.Context, e Override, d time.Duration, by string) error {
	n, err := nameOf(&e)
	switch {
	case err != nil:
		return err
	case o.options.Rules != nil && !o.options.Rules(e.Policy, e.Rule):
		return fmt.Errorf("overrides: policy %q has no rule %q: write the names that limit.Decision shows", e.Policy, e.Rule)
	case n.pattern && strings.HasPrefix(e.Rule, "per-ip-"):
		return fmt.Errorf("overrides: pattern %q of rule %q: a pattern is text, and could match addresses of other networks: write a Key for each address; "+
			"for a network, write exempt ip 10.0.0.0/8 in the rule, or bar 10.0.0.0/8 by package access", e.Pattern, e.Rule)
	case strings.HasPrefix(e.Rule, "per-ip-") && isOtherPrefix(e.Key):
		return fmt.Errorf("overrides: key %q of rule %q: no client has it, since the key of an IPv6 client is a prefix such as 2001:db8:1:2::/64: "+
			"write the key that operate.Key returns", e.Key, e.Rule)
	case e.Limit < 1 || e.Limit > core.MaxLimit:
		return fmt.Errorf("overrides: limit %d: write 1 to %d", e.Limit, int64(core.MaxLimit))
	case d <= 0:
		return fmt.Errorf("overrides: an override for %v: write how long it lasts, or limit.Never", d)
	case len(e.Reason) > maxReason || !utf8.ValidString(e.Reason):
		return fmt.Errorf("overrides: a reason of %d bytes: write at most %d bytes of UTF-8", len(e.Reason), maxReason)
	case d == math.MaxInt64:
		d = 0 // which a document has for good
	}
	text, err := json.Marshal(value{e.Limit, e.Reason})
	if err != nil {
		return err
	}
	return o.control.Put(ctx, kind, n.document(), text, d, by)
}

// isOtherPrefix reports whether a key is an IPv6 address or a prefix, but not in the form of a key.
func isOtherPrefix(key string) bool {
	if ip, err := netip.ParseAddr(key); err == nil {
		return ip.Is6()
	}
	p, err := netip.ParsePrefix(key)
	return err == nil && (p.Addr().Is4() || p.Masked().String() != key)
}

type value struct {
	Limit  int64  `json:"limit"`
	Reason string `json:"reason,omitempty"`
}

// ErrNone is wrapped by the error of [Overrides.Remove] for a key without an override.
var ErrNone = errors.New("overrides: no such override")

// Remove ends the override of a key or of a pattern, whose Limit and other fields it ignores.
// The error wraps [ErrNone] if there is none.
func (o *Overrides) Remove(ctx context.Context, e Override, by string) error {
	n, err := nameOf(&e)
	if err != nil {
		return err
	}
	removed, err := o.control.Delete(ctx, kind, n.document(), by)
	if err == nil && !removed {
		err = fmt.Errorf("%w: policy %q, rule %q, key %q: write one of List", ErrNone, e.Policy, e.Rule, cmp.Or(e.Pattern, e.Key))
	}
	return err
}

// List returns the overrides that this instance knows, sorted by policy, rule, key and pattern.
func (o *Overrides) List() (list []Override) {
	for _, e := range o.known.Load().overrides {
		if !e.ended() {
			list = append(list, *e)
		}
	}
	slices.SortFunc(list, func(a, b Override) int {
		return cmp.Or(cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Pattern, b.Pattern))
	})
	return list
}

func (e *Override) ended() bool { return !e.Until.IsZero() && !time.Now().Before(e.Until) }

// History returns the last changes, the newest first. The Name of a change has the policy, the
// rule and the key, quoted. Behind a quoted "free-", the star of the pattern free-* follows.
func (o *Overrides) History(ctx context.Context) ([]control.Change, error) {
	return o.control.History(ctx, kind)
}

// Limit returns the limit of a key, or 0 if it has no override. It is for limit.Options.Override.
func (o *Overrides) Limit(policy, rule, key string) int64 {
	return o.known.Load().limit(name{ruleName{policy, rule}, key, false})
}

func (o *Overrides) apply(documents map[string]control.Document) {
	k, invalid := known{make(map[name]*Override, len(documents)), map[ruleName][]int{}}, 0
	for document, d := range documents {
		var v value
		e, n, ok := read(document)
		if err := json.Unmarshal(d.Value, &v); !ok || err != nil || v.Limit < 1 || v.Limit > core.MaxLimit {
			invalid++
			continue
		}
		e.Limit, e.Reason, e.Until, e.By, e.At = v.Limit, v.Reason, d.Expires, d.By, d.At
		k.add(n, &e)
	}
	o.known.Store(&k)
	if invalid != o.invalid && invalid > 0 {
		notice.Write(&notice.Log{To: o.options.Log}, notice.OverridesInvalid, "overrides: documents that are no overrides have no effect", 0, "documents", invalid)
	}
	o.invalid = invalid
}
