// Package lua has the scripts that decide on Redis, and encodes their arguments and decodes their
// replies. It knows no client: the encoded arguments are for EVALSHA.
//
// The scripts run on Redis 6.2, 7 and 8, Valkey and miniredis. Each is documented in its own
// header. All times are in microseconds, which fit the doubles of Lua.
package lua

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/routelimit/limit/core"
)

// Rules encodes the calls for requests of one shape: with as many asks, and in these
// charges on the same states with the same quotas. It is safe for concurrent use.
type Rules struct {
	Script *Script
	One    *Script // for a lone request, with the same keys and arguments: see [Left]; or nil

	charges  []core.Charge // of a request, without keys, costs and leases
	places   []place       // of each of them
	rules    []rule        // different states and quotas
	longest  int64         // µs that an admitted request may wait: 0 without a queue
	reserves []byte        // an argument of the script, or nil: see reservesOf
	shape    []byte        // likewise, with several asks: see shapeOf
	tallied  sync.Map      // the scripts of Tallied, by the other algorithms
}

// A place is where in a request a charge is, and its rule.
type place struct{ ask, charge, rule int }

// A rule is a state with a quota, of one charge of a request or several.
type rule struct {
	core.Charge
	prefix string // of its keys
	size   int64  // weightOfSize
	places []int

	head   []byte // algorithm, limit and window, as the script gets them
	params string // likewise; "" if they change from call to call
}

// NewRules returns the encoder for requests with the rules of asks. The keys of Redis
// begin with prefix, and those of a policy share a hash tag made of it.
func NewRules(prefix string, asks []core.Ask) *Rules {
	l := &Rules{}
	for i := range asks {
		for j := range asks[i].Charges {
			l.add(prefix, i, j, &asks[i].Charges[j])
		}
	}
	l.reserves, l.shape = l.reservesOf(len(asks) > 1), l.shapeOf(asks)
	s := newSelection(taking)
	s.extra, s.several = l.reserves != nil, l.shape != nil
	s.addAlgorithms(len(l.rules), func(i int) *core.Quota { return &l.rules[i].Quota })
	l.Script = s.join("take.lua")
	if l.reserves == nil && l.shape == nil && len(l.places) == len(l.rules) &&
		!slices.ContainsFunc(l.charges, func(c core.Charge) bool { return c.Quota.Algorithm != core.SlidingLog }) {
		one := &selection{names: []string{"bytes.lua", "logforms.lua"}, purpose: taking}
		l.One = one.join("takeone.lua")
	}
	return l
}

// Left reports whether Rules.One has left a request to Rules.Script. The reply is without the
// number of the call.
func Left(reply []int64) bool { return len(reply) == 2 && reply[1] == 0 }

func (l *Rules) add(prefix string, ask, number int, from *core.Charge) {
	c := core.Charge{Policy: strings.Clone(from.Policy), Rule: strings.Clone(from.Rule), Variant: strings.Clone(from.Variant),
		Quota: from.Quota, Reserve: from.Reserve}
	r := slices.IndexFunc(l.rules, func(r rule) bool { return r.SameState(&c) && r.Quota == c.Quota })
	if r < 0 {
		r = len(l.rules)
		l.rules = append(l.rules, newRule(prefix, c))
	}
	l.rules[r].places = append(l.rules[r].places, len(l.places))
	l.charges = append(l.charges, c)
	l.places = append(l.places, place{ask, number, r})
	if c.Quota.Queues() {
		l.longest = maxSpan
	}
}

func newRule(prefix string, c core.Charge) rule {
	q := &c.Quota
	r := rule{Charge: c, prefix: KeyPrefix(prefix, &c), size: weightOfSize(q),
		head: []byte(string([]byte{byte(q.Algorithm)}) + number(q.Limit, 6) + number(q.Window, 6))}
	if !q.Identified() && q.Calendar.Unit == 0 {
		r.params = parameters(q, "")
	}
	return r
}

// at returns the charge at a place of a request.
func at(p place, request []core.Ask) *core.Charge { return &request[p.ask].Charges[p.charge] }

// maxSpan is longer than any time that a script answers, in µs.
const maxSpan = 2 * core.MaxFill

// Match reports whether asks have the shape of l, in the same order.
func (l *Rules) Match(asks []core.Ask) bool {
	n := 0
	for i := range asks {
		charges := asks[i].Charges
		if len(charges) > len(l.charges)-n {
			return false
		}
		for j := range charges {
			c, rule := &charges[j], &l.charges[n]
			if l.places[n].ask != i || c.Reserve != rule.Reserve || c.Quota != rule.Quota || !c.SameState(rule) {
				return false
			}
			n++
		}
	}
	return n == len(l.charges)
}

// Weight estimates for how many µs a request makes a batch longer at worst, such as
// when limits have changed. First is the first request of the batch. A key that both
// charge is read and written once.
func (l *Rules) Weight(asks, first []core.Ask) (us int64) {
	for _, p := range l.places {
		us += weightOfCharge
		if q := &l.rules[p.rule].Quota; at(p, asks).Key != at(p, first).Key || q.Identified() {
			us += q.Cells + l.rules[p.rule].size
		}
	}
	return us
}

const weightOfCharge = 9

// perMicro is how many entries of a list a script copies in a µs.
var perMicro = map[core.Algorithm]int64{core.SlidingLog: 35, core.Concurrency: 40, core.Distinct: 12, core.Ban: 10}

// weightOfSize is what the size of a stored state adds to the weight of a charge.
func weightOfSize(q *core.Quota) int64 {
	switch per := perMicro[q.Algorithm]; {
	case q.Queues():
		return min(q.Burst/2, core.MaxGaps)
	case per > 0:
		return q.Limit / per
	}
	return 0
}

const (
	chargeSize = 8      // index:2, cost:6
	specSize   = 17 + 9 // of most rules: see take.lua
)

// Encode returns the keys and the arguments of a call that decides requests of the shape of l. Now
// is empty but in tests; grace is the milliseconds that a key outlives its last unit. The caller
// may replace args[1], 0, by the time of Redis after which the call does nothing.
func (l *Rules) Encode(now string, grace int, requests [][]core.Ask) (keys []string, args []any) {
	keys, args, _ = l.encode(now, grace, requests)
	return keys, args
}

// encode is Encode. It also returns how many keys each rule has.
func (l *Rules) encode(now string, grace int, requests [][]core.Ask) (keys []string, args []any, counts [core.MaxCharges]int) {
	size := len(l.places) * chargeSize
	blob := make([]byte, len(requests)*size, len(requests)*size+1+specSize*len(l.rules)) // and the rules
	spec := append(blob[len(blob):], byte(len(l.rules)))
	few := new(struct { // in one allocation
		keys [4]string
		args [8]any // one for the caller
	})
	if keys = few.keys[:0]; len(requests)*len(l.places) > len(few.keys) {
		keys = make([]string, 0, len(requests)*len(l.places))
	}
	var names strings.Builder // of all keys
	names.Grow(l.sizeOfKeys(requests))
	var index map[string]int
	if len(requests) > 1 || len(l.places) > len(l.rules) {
		index = make(map[string]int, len(requests))
	}
	begin := 0 // of the next key in names
	for r := range l.rules {
		rule := &l.rules[r]
		clear(index)
		first := len(keys)
		for d, asks := range requests {
			for _, p := range rule.places {
				c := at(l.places[p], asks)
				i, known := index[c.Key]
				if !known {
					names.WriteString(rule.prefix)
					names.WriteString(escape(c.Key, &keyBytes))
					keys = append(keys, names.String()[begin:])
					begin = names.Len()
					i = len(keys)
					if index != nil {
						index[c.Key] = i
					}
				}
				binary.BigEndian.PutUint64(blob[d*size+p*chargeSize:], uint64(i)<<48|uint64(c.Cost))
			}
		}
		counts[r] = len(keys) - first
		params := rule.params
		if params == "" {
			params = parameters(&rule.Quota, now)
		}
		spec = append(spec, rule.head...)
		spec = binary.BigEndian.AppendUint16(spec, uint16(counts[r]))
		end := len(spec)
		spec = append(append(spec, 0, 0), params...)
		if rule.Quota.Identified() {
			spec = l.idsOf(spec, requests, rule)
		}
		binary.BigEndian.PutUint16(spec[end:], uint16(len(spec)-end-2))
	}
	args = append(few.args[:0], now, 0, grace, spec, blob)
	if l.reserves != nil {
		args = append(args, l.reserves)
	}
	if l.shape != nil {
		args = append(args, l.shape)
	}
	return keys, args, counts
}

// sizeOfKeys returns how many bytes the keys of requests have, more if several have the same key, and
// less if a key is escaped.
func (l *Rules) sizeOfKeys(requests [][]core.Ask) (n int) {
	for r := range l.rules {
		rule := &l.rules[r]
		for d, asks := range requests {
			for _, p := range rule.places {
				if key := at(l.places[p], asks).Key; d == 0 || key != "" { // all requests share the empty key
					n += len(rule.prefix) + len(key)
				}
			}
		}
	}
	return n
}

// idsOf appends the ids of a rule's charges in requests, of several asks one for each charge.
func (l *Rules) idsOf(b []byte, requests [][]core.Ask, r *rule) []byte {
	if l.shape == nil {
		b = slices.Grow(b, 8*len(requests))
		for _, asks := range requests {
			b = appendID(b, at(l.places[r.places[0]], asks).ID)
		}
		return b
	}
	ids := make([]byte, 8*len(requests)*len(l.places))
	for d, asks := range requests {
		for _, p := range r.places {
			binary.BigEndian.PutUint64(ids[8*(d*len(l.places)+p):], at(l.places[p], asks).ID)
		}
	}
	return append(b, ids...)
}

// parameters returns what the script gets of a quota beside its algorithm, limit
// and window: the numbers that the algorithm uses, in the order of the fields.
func parameters(q *core.Quota, now string) string {
	fields := q.Algorithm.Fields()
	switch {
	case q.Algorithm == core.SlidingLog:
		return logHead(q)
	case q.Leases():
		return number(q.Window, 6)
	case q.Algorithm == core.Distinct:
		return number(q.Limit, 2) + number(q.Window, 6)
	case q.Bars():
		return number(q.Limit, 2) + number(q.Window, 6) + number(q.Bar, 6) + number(max(q.Bar, q.MaxBar), 6)
	case q.Algorithm == core.FixedWindow:
		mark := q.WindowMark()
		form := "u" + string(mark[:])
		if q.Calendar.Unit != 0 {
			form += periods(q.Calendar, now)
		}
		return form
	}
	var b []byte
	for i, n := range q.Numbers() {
		if !fields.Has(1 << i) {
			continue
		}
		if b != nil {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, n, 10)
	}
	return string(b)
}

// logHead returns how a log begins that only this quota charges: see logforms.lua.
func logHead(q *core.Quota) string {
	long := q.Window >= 1<<32
	switch large := q.Limit > 128 || q.Window%1000 != 0; {
	case large && long:
		return "N" + number(q.Limit, 3) + number(q.Window, 6)
	case large:
		return "M" + number(q.Limit, 3) + number(q.Window, 6)
	case long:
		return "B" + number(q.Limit, 1) + number(q.Window/1000, 5)
	}
	return "A" + number(q.Limit, 1) + number(q.Window/1000, 3)
}

// number returns the low bytes of n, big-endian.
func number(n int64, bytes int) string { return string(appendID(nil, uint64(n))[8-bytes:]) }

// periods returns the beginnings of five calendar periods, the second that of this process's clock.
// The script takes the one that the clock of Redis is in, so the clocks may differ by up to a
// period.
func periods(c core.Calendar, now string) string {
	at, err := strconv.ParseInt(now, 10, 64)
	if err != nil {
		at = time.Now().UnixMicro()
	}
	from, _ := c.Period(at)
	from, until := c.Period(from - 1)
	five := make([]byte, 0, 5*7)
	for range 5 {
		for shift := 48; shift >= 0; shift -= 8 {
			five = append(five, byte(from>>shift))
		}
		from = until
		_, until = c.Period(from)
	}
	return string(five)
}

// What Decode may find wrong.
var (
	// ErrReply is wrapped by errors about a reply that no script of this package made.
	ErrReply = errors.New("lua: unexpected reply")

	// ErrValue is wrapped by errors about a key of Redis that does not hold the
	// state of a rule: delete it. Nothing was taken, and the key is unchanged,
	// unless its value has the form of a state.
	ErrValue = errors.New("lua: the key does not hold the state of a rule")

	// ErrClock says that the clocks of this process and of Redis are more than a calendar period
	// apart.
	ErrClock = errors.New("lua: the clocks of this process and of Redis differ by a calendar period")
)

// Decode sets the decisions of requests from the reply to their call. For each request
// it calls done with its number. An error of one request does not concern the others; an
// error that Decode returns concerns all.
func (l *Rules) Decode(reply []int64, requests [][]core.Ask, done func(int, error)) error {
	asks := l.places[len(l.places)-1].ask + 1
	size := asks + 3*len(l.places)
	if len(reply) != 1+len(requests)*size {
		return fmt.Errorf("%w: %d numbers for %d decisions with %d rules", ErrReply, len(reply), len(requests)*asks, len(l.rules))
	}
	now := reply[0]
	if now < 0 || now > core.MaxTime {
		return fmt.Errorf("%w: the time %d", ErrReply, now)
	}
	for d, asks := range requests {
		part := reply[1+d*size:][:size]
		undecided, failed := false, error(nil)
		for i := range asks {
			ask := &asks[i]
			n := 1 + 3*len(ask.Charges)
			switch verdict := part[0]; {
			case 0 <= verdict && verdict <= 1+l.longest:
				ask.Decision = core.NewDecision(now, len(ask.Charges))
				ask.Decision.Allowed, ask.Decision.Delay = verdict > 0, max(0, verdict-1)
				if err := l.outcomes(ask, part[1:n]); failed == nil {
					failed = err
				}
			case verdict == -1:
				undecided = true
			default:
				return fmt.Errorf("%w: verdict %d", ErrReply, verdict)
			}
			part = part[n:]
		}
		if undecided {
			failed = l.problem(reply[1+d*size:][:size], asks)
		}
		done(d, failed)
	}
	return nil
}

// outcomes reads the three numbers of each charge. Numbers that no rule can have are
// from a state that no script wrote. They must not reach clients.
func (l *Rules) outcomes(ask *core.Ask, part []int64) error {
	d := &ask.Decision
	outcomes := d.Outcomes()
	for i := range ask.Charges {
		c, o := &ask.Charges[i], &outcomes[i]
		left, after, reset := part[3*i], part[3*i+1], part[3*i+2]
		needs, shows := c.Cost, c.Quota.Algorithm == core.Distinct
		if shows {
			needs = 0 // or 1, and then it does not fit
		}
		if left == -1 && !d.Allowed && (shows || c.Quota.Bars()) { // see take.lua
			left, needs = 0, 1
		}
		if !plausible(c, left, after, reset) {
			return fmt.Errorf("%w: %s makes no sense: %d", ErrValue, l.key(c), part[3*i:3*i+3])
		}
		o.Remaining, o.ResetAfter = left, reset
		if d.Allowed || needs == 0 || needs+c.Reserve <= left {
			o.MoreAfter = after
		} else {
			o.RetryAfter = after
		}
	}
	return nil
}

// plausible reports whether a rule can have these numbers.
func plausible(c *core.Charge, left, after, reset int64) bool {
	return left >= 0 && left <= c.Quota.Capacity() && after >= core.Never && after <= maxSpan && reset >= 0 && reset <= maxSpan
}

// key returns the key of a charge of l.
func (l *Rules) key(c *core.Charge) string {
	r := slices.IndexFunc(l.rules, func(r rule) bool { return r.SameState(c) })
	return l.rules[r].prefix + escape(c.Key, &keyBytes)
}

// problem says which key of a request that is undecided is at fault, and how.
func (l *Rules) problem(part []int64, asks []core.Ask) error {
	for i := range asks {
		for j := range asks[i].Charges {
			if what := part[1+3*j]; part[0] == -1 && what != 0 {
				return wrong(what, l.key(&asks[i].Charges[j]))
			}
		}
		part = part[1+3*len(asks[i].Charges):]
	}
	return fmt.Errorf("%w: undecided without a reason", ErrReply)
}

// wrong says what is wrong with a key.
func wrong(what int64, key string) error {
	switch what {
	case 1:
		return fmt.Errorf("%w: %s is of another type", ErrValue, key)
	case 2:
		return fmt.Errorf("%w: %s was written by something else", ErrValue, key)
	case 3:
		return ErrClock
	}
	if a := core.Algorithm(what - lackBase); what >= lackBase && a <= core.Queue {
		return &lackError{key, a}
	}
	return fmt.Errorf("%w: undecided for the reason %d", ErrReply, what)
}
