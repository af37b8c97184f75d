package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit/core"
)

// Durations in the unit of package core.
const (
	ms   = 1_000
	sec  = 1_000 * ms
	hour = 3600 * sec
	day  = 24 * hour
)

// A script is a list of charges at given times, with the outcomes that they must
// have.
type script struct {
	name string
	rows []row
}

// A row is one decision. It must be admitted if and only if all of its charges fit.
type row struct {
	at    int64 // µs since the start of the script
	mets  []met
	delay int64 // in queues
}

// A met is a charge and the outcome that it must have.
type met struct {
	charge  core.Charge
	outcome core.Outcome
}

func at(at int64, mets ...met) row { return row{at: at, mets: mets} }

// delayed returns r with a delay.
func (r row) delayed(delay int64) row { r.delay = delay; return r }

// on returns a function that charges a rule of an exact window by a cost.
func on(rule string, limit, window int64) func(cost int64, outcome core.Outcome) met {
	return by(rule, core.Quota{Limit: limit, Window: window})
}

// by returns a function that charges a rule by a cost.
func by(rule string, quota core.Quota) func(cost int64, outcome core.Outcome) met {
	return func(cost int64, outcome core.Outcome) met {
		return met{core.Charge{Rule: rule, Key: "k", Quota: quota, Cost: cost}, outcome}
	}
}

func fits(remaining, more, reset int64) core.Outcome {
	return core.Outcome{Remaining: remaining, MoreAfter: more, ResetAfter: reset}
}

func short(remaining, retry, reset int64) core.Outcome {
	return core.Outcome{Remaining: remaining, RetryAfter: retry, ResetAfter: reset}
}

// Where scripts start: on some day, and so that the low 32 bits of the time
// overflow within the first milliseconds, since stores may keep no more.
var starts = []int64{1_750_000_000_000_000, 407_000<<32 - 5*ms}

func scripts(all []script) []namedTest {
	tests := make([]namedTest, len(all))
	for i, s := range all {
		tests[i] = namedTest{s.name, func(t *testing.T, h Harness) {
			for _, start := range starts {
				s.run(t, h, start)
			}
		}}
	}
	return tests
}

func (s script) run(t *testing.T, h Harness, start int64) {
	t.Helper()
	policy := fmt.Sprint(s.name, start)
	for i, row := range s.rows {
		where := fmt.Sprintf("row %d, %v after %d", i, micros(row.at), start)
		charges, allowed := make([]core.Charge, len(row.mets)), true
		for j, m := range row.mets {
			charges[j] = m.charge
			allowed = allowed && m.outcome.Fits()
		}
		h.SetTime(start + row.at)
		d := take(t, h, policy, charges...)
		assert.Equal(t, allowed, d.Allowed, where)
		assert.Equal(t, start+row.at, d.At, where)
		assert.Equal(t, row.delay, d.Delay, where)
		for j, got := range d.Outcomes() {
			assert.Equal(t, row.mets[j].outcome, got, "%s, %s", where, describe(charges[j]))
		}
	}
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

func describe(c core.Charge) string {
	text := fmt.Sprintf("%s%s/%s %d of %d per %v, %v", c.Rule, c.Variant, c.Key, c.Cost, c.Quota.Limit, micros(c.Quota.Window), c.Quota.Algorithm)
	if c.Reserve > 0 {
		text += fmt.Sprintf(", reserve %d", c.Reserve)
	}
	return text
}

func outcome(o core.Outcome) string {
	return fmt.Sprintf("fits=%v remaining=%d retry=%d more=%d reset=%d",
		o.Fits(), o.Remaining, o.RetryAfter, o.MoreAfter, o.ResetAfter)
}
