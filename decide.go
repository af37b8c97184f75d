package limit

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/clientip"
)

// decideHTTP is [Adapter.Decide] for every type of context. If the request is served,
// it waits as its rules say; the error may then be that of its context.
func (p *version) decideHTTP(d *Decision, r *http.Request, from framework, cost int64, served bool) error {
	ctx := r.Context()
	if p.byIP {
		p.limiter.noticeProxies(r)
	}
	route := p.route(from)
	if p.limiter.screen(d, r, from, route) {
		return nil
	}
	s := route.scratch() // not put back after a panic of the program's functions
	err := p.charge(s, route, &source{limiter: p.limiter, request: r, framework: from, cost: cost})
	if p.byUser && p.userless.Load() < userlessAfter {
		p.noticeUsers(s.charges)
	}
	switch {
	case err != nil:
	case s.caller.exempt == p.all:
		d.Allowed, d.Mode, d.At, d.route = true, ModeExempt, time.Now(), route
	case served && p.waits:
		err = p.decideWaiting(d, r, route, s)
	default:
		err = p.decide(ctx, p.limiter.detached(ctx), d, route, s, false)
	}
	route.put(s)
	if err != nil {
		if served && p.waits && !errors.Is(err, ErrUndecided) {
			return err // the client has left
		}
		p.limiter.failed(undecidedRequest, r, *d, err)
		return err
	}
	if d.lease != nil {
		d.reportLoss(r)
	}
	return nil
}

// detached returns the context to call the store with for a caller that may go away.
// A memory store answers at once, and asks the context for nothing.
func (l *Limiter) detached(ctx context.Context) context.Context {
	if l.inMemory {
		return context.Background()
	}
	return context.WithoutCancel(ctx)
}

// A source has what a decision takes from an HTTP request: the values of keys and the
// costs.
type source struct {
	limiter   *Limiter
	request   *http.Request
	framework framework
	cost      int64 // 0 for that of the rules
}

// value returns the value of a key, or "" if there is none.
func (s *source) value(k *KeyResolver) string {
	r := s.request
	var v string
	switch k.kind {
	case byIP:
		return s.limiter.options.Proxies.key(r)
	case byUser:
		v = s.framework.user(r)
	case byHeader:
		v = r.Header.Get(k.name)
	case byCookie:
		if c, err := r.Cookie(k.name); err == nil {
			v = c.Value
		}
	case byQuery:
		if r.URL != nil && r.URL.RawQuery != "" {
			v = r.URL.Query().Get(k.name)
		}
	case byPath:
		v = s.framework.pathValue(r, k.name)
	case byFunc:
		v = (*k.fn)(r)
	}
	return strings.TrimSpace(v)
}

// costOf returns what the request costs of a rule.
func (s *source) costOf(rule *Rule) (int64, error) {
	switch {
	case rule.bars() && rule.Cost.fn == nil:
		return 0, nil
	case s.cost != 0:
		return validCost(s.cost)
	case rule.Cost.fn != nil:
		return validCost(rule.Cost.Units(s.request))
	}
	return 1, nil
}

// validCost returns n as a cost. A negative cost is an error, since it would give
// back quota that was never taken. One above what any store counts is more than
// any rule allows, and is capped.
func validCost(n int64) (int64, error) {
	if n < 0 {
		return 0, fmt.Errorf("cost %d: write 0 or more", n)
	}
	return min(n, core.MaxCost), nil
}

// charge fills in the keys and costs of an HTTP request.
func (p *version) charge(s *scratch, route *route, from *source) (err error) {
	if len(p.names) == 0 {
		return errNoRules
	}
	p.resolve(s, route, from.value)
	for i := range s.charges {
		if s.charges[i].Cost, err = from.costOf(&p.set.rules[i]); err != nil {
			return fmt.Errorf("%w: rule %q: %w", ErrUndecided, p.names[i], err)
		}
	}
	s.caller = caller{terms: p.usual, class: p.defaultClass}
	if p.distinguishes {
		p.distinguish(s, route, p.profile(from))
	}
	return nil
}

// chargeRequest fills in the keys and costs of a request that check has accepted. It
// returns what is wrong with its keys. The maps of the request do not escape, so that
// a literal costs its caller no allocation.
func (p *version) chargeRequest(s *scratch, r *Request) error {
	if len(p.names) == 0 {
		return errNoRules
	}
	faulty := p.joins // a part that is not asked may be missing too
	p.resolve(s, p.named, func(k *KeyResolver) string {
		v, ok := p.limiter.valueOf(k, r.Keys)
		faulty = faulty || !ok
		return v
	})
	if faulty {
		if err := p.missing(r.Keys); err != nil {
			return err
		}
	}
	for i := range s.charges {
		cost := max(1, r.Cost)
		if p.bars && p.set.rules[i].bars() {
			cost = 0
		}
		if len(r.Costs) > 0 {
			if n, said := r.Costs[p.names[i]]; said {
				cost = n
			}
		}
		s.charges[i].Cost = min(cost, core.MaxCost)
	}
	s.caller = caller{terms: p.usual, class: p.defaultClass}
	if p.distinguishes || r.Class != "" { // waiters have classes, whatever the rules
		p.distinguish(s, p.named, r.profile(p))
	}
	return nil
}

// resolve fills in the keys of a request. Each resolver is asked once.
func (p *version) resolve(s *scratch, route *route, value func(*KeyResolver) string) {
	for i := range s.charges {
		if first := p.keyOf[i]; first < i {
			s.charges[i].Key = s.charges[first].Key
		} else {
			s.charges[i].Key = p.set.rules[i].Key.resolve(value)
		}
	}
	if p.shows {
		for i := range s.charges {
			if rule := &p.set.rules[i]; rule.shows() {
				values := rule.values()
				s.charges[i].ID = valueID(values.resolve(value))
			}
		}
	}
	if p.watch != nil && p.watch.enforced {
		p.choose(route, s.charges)
	}
}

// valueID returns the id of a value, which is the same in all processes. Clients choose
// values, so it is a part of a cryptographic hash: finding two values with one id takes
// billions of tries, and gains a client one value. No value has the id 0.
func valueID(value string) uint64 {
	if value == "" {
		return 0
	}
	sum := sha256.Sum256([]byte(value))
	return max(1, binary.BigEndian.Uint64(sum[:]))
}

// decide decides for a caller that waits as long as the context waiting, with a
// call that ends with the context calling. If reserve is set, the decision can be
// settled. After an error, d is the zero Decision.
func (p *version) decide(waiting, calling context.Context, d *Decision, r *route, s *scratch, reserve bool) error {
	err := p.take(calling, d, r, s, reserve)
	if d.Delay > 0 {
		*d, _ = d.late(waiting)
	}
	return err
}

// latencySample is how many decisions in memory there are for each whose time is taken.
const latencySample = 16

// epoch is a time to measure from: time.Since reads one clock, and time.Now two.
var epoch = time.Now()

// take asks the store.
func (p *version) take(ctx context.Context, d *Decision, r *route, s *scratch, reserve bool) (err error) {
	charges := s.charges
	var began time.Time
	if p.leases {
		nameLeases(charges)
		began = time.Now()
	}
	if p.limiter.observers.Load() == nil || p.limiter.inMemory && rand.Uint32()%latencySample != 0 {
		d.core, err = p.limiter.store.Take(ctx, r.stored, charges)
	} else {
		start := time.Since(epoch)
		d.core, err = p.limiter.store.Take(ctx, r.stored, charges)
		d.Latency = time.Since(epoch) - start
	}
	if err != nil {
		*d = Decision{}
		return fmt.Errorf("%w: %w", ErrUndecided, err)
	}
	if d.core.Mode == core.ModeOverflow {
		p.limiter.notices.overflowed(p.limiter, r.name)
	}
	d.caller = s.caller
	d.keys.keep(charges)
	if look := p.limiter.notices.look.Load(); look != 0 {
		p.limiter.lookOnce(look, d.core.Mode)
	}
	d.describe(p, r)
	if !d.Allowed {
		return nil
	}
	if p.leases {
		d.lease = p.newLease(r, charges, began)
	}
	if reserve || p.settles || p.queues {
		d.taken = newTaken(d, charges)
	}
	return nil
}

// keyed reports whether a rule has a resolver as its key.
func (p *version) keyed(k *KeyResolver) bool {
	return slices.ContainsFunc(p.set.rules, func(r Rule) bool { return r.Key.label == k.label })
}

// missing returns an error that joins one for each key of the policy that keys
// has no value for, or no address where one is needed.
func (p *version) missing(keys map[string]string) error {
	var errs []error
	for i, first := range p.keyOf {
		if first == i {
			errs = append(errs, p.set.rules[i].Key.missing(keys)...)
		}
		if rule := &p.set.rules[i]; rule.shows() {
			if values := rule.values(); !p.keyed(&values) {
				errs = append(errs, values.missing(keys)...)
			}
		}
	}
	return errors.Join(errs...)
}

func (k *KeyResolver) missing(keys map[string]string) (errs []error) {
	for i := range k.parts {
		errs = append(errs, k.parts[i].missing(keys)...)
	}
	if k.kind == everyone || len(k.parts) > 0 {
		return errs
	}
	v, ok := lookup(keys, k)
	switch {
	case !ok:
		return []error{fmt.Errorf("limit: no key %q: write Keys: map[string]string{%[1]q: …}, with \"\" if there is none", k.label)}
	case k.kind == byIP && v != "" && clientip.Key(v, 0) == "":
		return []error{fmt.Errorf("limit: key \"ip\": %q is not an address: write one such as 203.0.113.9", v)}
	}
	return nil
}

// lookup returns the value of a key. A header is found by a name that differs in
// case, unless two do.
func lookup(keys map[string]string, key *KeyResolver) (value string, ok bool) {
	if value, ok = keys[key.label]; ok || key.kind != byHeader {
		return value, ok
	}
	found := 0
	for label, v := range keys {
		if strings.EqualFold(label, key.label) {
			value = v
			found++
		}
	}
	return value, found == 1
}

// valueOf returns the value of a key from Request.Keys, and whether there is a valid
// one: see missing. Addresses have as many bits as those of HTTP requests.
func (l *Limiter) valueOf(key *KeyResolver, keys map[string]string) (value string, ok bool) {
	v, ok := lookup(keys, key)
	if key.kind == byIP {
		address := clientip.Key(v, l.options.Proxies.IPv6Prefix)
		return address, ok && (address != "" || v == "")
	}
	return strings.TrimSpace(v), ok
}
