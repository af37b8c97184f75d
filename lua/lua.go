// Package lua has the scripts that decide on Redis, and encodes their arguments
// and decodes their replies. It knows no client: the encoded arguments are for
// EVALSHA.
//
// The scripts run on Redis 6.2, 7 and 8, Valkey and miniredis. Each is
// documented in its own header. All times are in microseconds, which fit the
// doubles of Lua.
package lua

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/routelimit/limit/core"
)

// Rules encodes the calls for one policy with one list of rules. It is safe for
// concurrent use.
type Rules struct {
	Script *Script

	rules    []core.Charge // without keys, costs and leases
	prefixes []string      // of the keys of each rule
	sizes    []int64       // weightOfSize of each rule
	longest  int64         // µs that an admitted request may wait: 0 without a queue
	extras   []byte        // an argument of the script, or nil: see extrasOf
}

// NewRules returns the encoder for decisions with the rules of charges. The
// keys of Redis begin with prefix, and share a hash tag made of the policy.
func NewRules(prefix, policy string, charges []core.Charge) *Rules {
	l := &Rules{Script: takeScript(charges), extras: extrasOf(charges)}
	for _, c := range charges {
		l.rules = append(l.rules, core.Charge{Rule: strings.Clone(c.Rule), Quota: c.Quota, Alone: c.Alone, Reserve: c.Reserve})
		l.sizes = append(l.sizes, weightOfSize(&c.Quota))
		l.prefixes = append(l.prefixes, KeyPrefix(prefix, policy, c.Rule))
		if c.Quota.Queues() && !c.Alone {
			l.longest = maxSpan
		}
	}
	return l
}

// maxSpan is longer than any time that a script answers, in µs.
const maxSpan = 2 * core.MaxFill

// Match reports whether charges have the rules of l, in the same order, and decide
// alone and leave units to others as they do.
func (l *Rules) Match(charges []core.Charge) bool {
	if len(charges) != len(l.rules) {
		return false
	}
	for i := range charges {
		c, rule := &charges[i], &l.rules[i]
		if c.Alone != rule.Alone || c.Reserve != rule.Reserve || c.Quota != rule.Quota || c.Rule != rule.Rule {
			return false
		}
	}
	return true
}

// Weight estimates for how many µs a decision makes a batch longer at worst, such as
// when limits have changed. First is the first decision of the batch. A key that both
// charge is read and written once.
func (l *Rules) Weight(charges, first []core.Charge) (us int64) {
	for r := range l.rules {
		us += weightOfCharge
		if q := &l.rules[r].Quota; charges[r].Key != first[r].Key || q.Identified() {
			us += q.Cells + l.sizes[r]
		}
	}
	return us
}

const (
	weightOfCharge  = 9
	logPerMicro     = 35 // units of a log that are copied in a µs
	leasesPerMicro  = 40
	valuesPerMicro  = 12
	strikesPerMicro = 10
	gapsPerMicro    = 1
)

// weightOfSize is what the size of a stored state adds to the weight of a charge.
func weightOfSize(q *core.Quota) int64 {
	switch q.Algorithm {
	case core.SlidingLog:
		return q.Limit / logPerMicro
	case core.Concurrency:
		return q.Limit / leasesPerMicro
	case core.Distinct:
		return q.Limit / valuesPerMicro
	case core.Ban:
		return q.Limit / strikesPerMicro
	case core.Queue:
		return min(q.Burst/2, core.MaxGaps) / gapsPerMicro
	}
	return 0
}

const (
	chargeSize = 8 // index:2, cost:6
	argsBefore = 4
	argsARule  = 5
)

// Encode returns the keys and the arguments of a call that takes decisions,
// each with the rules of l. Now is empty but in tests; grace is the
// milliseconds that a key outlives its last unit. The caller may replace args[1], 0,
// by the time of Redis after which the call does nothing.
func (l *Rules) Encode(now string, grace int, decisions [][]core.Charge) (keys []string, args []any) {
	size := len(l.rules) * chargeSize
	blob := make([]byte, len(decisions)*size)
	args = make([]any, 0, argsBefore+argsARule*len(l.rules)+3) // one for the caller
	args = append(args, now, 0, grace, len(l.rules))
	keys = make([]string, 0, len(decisions)*len(l.rules))
	index := make(map[string]int, len(decisions))
	for r := range l.rules {
		clear(index)
		first := len(keys)
		for d, charges := range decisions {
			c := &charges[r]
			i, known := index[c.Key]
			if !known {
				keys = append(keys, l.prefixes[r]+escape(c.Key, &keyBytes))
				i = len(keys)
				index[c.Key] = i
			}
			at := blob[d*size+r*chargeSize:]
			binary.BigEndian.PutUint64(at, uint64(i)<<48|uint64(c.Cost))
		}
		q := l.rules[r].Quota
		var params any
		if q.Identified() {
			params = idsOf(decisions, r)
		} else {
			params = parameters(&q, now)
		}
		args = append(args, int(q.Algorithm), q.Limit, q.Window, len(keys)-first, params)
	}
	args = append(args, blob)
	if l.extras != nil {
		args = append(args, l.extras)
	}
	return keys, args
}

// parameters returns what the script gets of a quota beside its algorithm, limit
// and window: the numbers that the algorithm uses, in the order of the fields.
func parameters(q *core.Quota, now string) string {
	fields := q.Algorithm.Fields()
	switch {
	case q.Calendar.Unit != 0:
		return periods(q.Calendar, now)
	case q.Aligned:
		return "="
	}
	var b []byte
	for _, p := range []struct {
		field core.Fields
		n     int64
	}{
		{core.FieldBurst, q.Burst}, {core.FieldCells, q.Cells}, {core.FieldMissing, q.Missing}, {core.FieldMaxWait, q.MaxWait},
		{core.FieldBar, q.Bar}, {core.FieldMaxBar, q.MaxBar},
	} {
		if fields.Has(p.field) {
			if b != nil {
				b = append(b, ',')
			}
			b = strconv.AppendInt(b, p.n, 10)
		}
	}
	return string(b)
}

// periods returns the beginnings of four calendar periods. The second is that of
// the clock of this process. The script takes the one that the clock of Redis is
// in, so the two clocks may differ by up to a period.
func periods(c core.Calendar, now string) string {
	at, err := strconv.ParseInt(now, 10, 64)
	if err != nil {
		at = time.Now().UnixMicro()
	}
	from, _ := c.Period(at)
	from, until := c.Period(from - 1)
	var b []byte
	for range 4 {
		b = append(b, byte(from>>48), byte(from>>40), byte(from>>32), byte(from>>24), byte(from>>16), byte(from>>8), byte(from))
		from = until
		_, until = c.Period(from)
	}
	return string(b)
}

// What Decode may find wrong.
var (
	// ErrReply is wrapped by errors about a reply that no script of this
	// package made.
	ErrReply = errors.New("lua: unexpected reply")

	// ErrValue is wrapped by errors about a key of Redis that does not hold the
	// state of a rule: delete it. Nothing was taken, and the key is unchanged,
	// unless its value has the form of a state.
	ErrValue = errors.New("lua: the key does not hold the state of a rule")

	// ErrClock says that the clocks of this process and of Redis are more than
	// a calendar period apart.
	ErrClock = errors.New("lua: the clocks of this process and of Redis differ by a calendar period")
)

// Decode fills in the decisions of a call from its reply, in the order of
// Encode. For each it calls done with its number. An error of one decision
// does not concern the others; an error that Decode returns concerns all.
func (l *Rules) Decode(reply []int64, decisions [][]core.Charge, done func(int, core.Decision, error)) error {
	size := 1 + 3*len(l.rules)
	if len(reply) != 1+len(decisions)*size {
		return fmt.Errorf("%w: %d numbers for %d decisions with %d rules", ErrReply, len(reply), len(decisions), len(l.rules))
	}
	now := reply[0]
	if now < 0 || now > core.MaxTime {
		return fmt.Errorf("%w: the time %d", ErrReply, now)
	}
	for d, charges := range decisions {
		part := reply[1+d*size:][:size]
		switch verdict := part[0]; {
		case 0 <= verdict && verdict <= 1+l.longest:
			decision := core.NewDecision(now, len(l.rules))
			decision.Allowed, decision.Delay = verdict > 0, max(0, verdict-1)
			if err := l.outcomes(&decision, part[1:], charges); err != nil {
				done(d, core.Decision{}, err)
			} else {
				done(d, decision, nil)
			}
		case verdict == -1:
			done(d, core.Decision{}, l.problem(part[1:], charges))
		default:
			return fmt.Errorf("%w: verdict %d", ErrReply, verdict)
		}
	}
	return nil
}

// outcomes reads the three numbers of each rule. Numbers that no rule can have are
// from a state that no script wrote. They must not reach clients.
func (l *Rules) outcomes(d *core.Decision, part []int64, charges []core.Charge) error {
	for r := range charges {
		c, o := &charges[r], &d.Outcomes()[r]
		left, after, reset := part[3*r], part[3*r+1], part[3*r+2]
		needs, shows := c.Cost, c.Quota.Algorithm == core.Distinct
		if shows {
			needs = 0 // or 1, and then it does not fit
		}
		if left == -1 && !d.Allowed && (shows || c.Quota.Bars()) { // see take.lua
			left, needs = 0, 1
		}
		fits := d.Allowed || needs == 0 || needs+c.Reserve <= left
		if c.Alone {
			d.SetAlone(r)
			if fits = after >= 0; after < core.Never {
				after = core.Never - after
			}
		}
		if left < 0 || left > c.Quota.Capacity() || after < core.Never || after > maxSpan || reset < 0 || reset > maxSpan {
			return fmt.Errorf("%w: %s makes no sense: %d", ErrValue, l.key(r, c), part[3*r:3*r+3])
		}
		o.Remaining, o.ResetAfter = left, reset
		if fits {
			o.MoreAfter = after
		} else {
			o.RetryAfter = after
		}
	}
	return nil
}

func (l *Rules) key(r int, c *core.Charge) string { return l.prefixes[r] + escape(c.Key, &keyBytes) }

// problem says which key of an undecided decision is at fault, and how.
func (l *Rules) problem(part []int64, charges []core.Charge) error {
	for r := range charges {
		if part[3*r] != 0 {
			return wrong(part[3*r], l.key(r, &charges[r]))
		}
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
	return fmt.Errorf("%w: undecided for the reason %d", ErrReply, what)
}
