package guard

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

const ms = 1_000

// TestBreaker plays sequences of calls: when each comes, whether it may go and is a
// probe, and how it goes.
func TestBreaker(t *testing.T) {
	type call struct {
		at         int64
		may, probe bool
		result     result
	}
	goes := func(at int64, r result) call { return call{at, true, false, r} }
	probes := func(at int64, r result) call { return call{at, true, true, r} }
	stays := func(at int64) call { return call{at: at} }
	many := func(n int, c ...call) (all []call) {
		for range n {
			all = append(all, c...)
		}
		return all
	}
	join := func(all ...[]call) (calls []call) {
		for _, some := range all {
			calls = append(calls, some...)
		}
		return calls
	}
	one := func(c ...call) []call { return c }
	for name, calls := range map[string][]call{
		"works":                       many(100, goes(1, answered)),
		"four failures do not open":   join(many(4, goes(1, failed)), one(goes(2, answered)), many(4, goes(3, failed)), one(goes(4, answered))),
		"five failures open":          join(many(5, goes(ms, failed)), one(stays(ms), stays(26*ms-1), probes(26*ms, answered), goes(26*ms, answered))),
		"requests' own errors do not": join(many(1000, goes(1, silent)), one(goes(2, answered))),
		"nor do they interrupt failures": join(many(4, goes(ms, failed), goes(ms, silent)),
			one(goes(ms, failed), stays(ms))),
		"probes back off": join(many(5, goes(0, failed)), one(
			stays(25*ms-1), probes(25*ms, failed),
			stays(75*ms-1), probes(75*ms, failed),
			stays(175*ms-1), probes(175*ms, failed),
			stays(375*ms-1), probes(375*ms, failed),
			stays(625*ms-1), probes(625*ms, failed),
			stays(875*ms-1), probes(875*ms, answered),
			goes(875*ms, failed))),
		"backing off begins anew": join(many(5, goes(0, failed)), one(probes(25*ms, failed), probes(75*ms, answered)),
			many(5, goes(80*ms, failed)), one(stays(105*ms-1), probes(105*ms, answered))),
		"a slow probe is none":         join(many(5, goes(0, failed)), one(probes(25*ms, slow), stays(75*ms-1), probes(75*ms, answered), goes(75*ms, answered))),
		"a probe that goes away":       join(many(5, goes(0, failed)), one(probes(25*ms, silent), probes(25*ms, silent), probes(25*ms, answered))),
		"late":                         join(many(5, goes(0, failed)), one(probes(3600_000*ms, answered), goes(3600_000*ms, answered))),
		"nine of twenty slow":          many(20, join(many(9, goes(1, slow)), many(11, goes(1, answered)))...),
		"ten of twenty slow":           join(many(10, goes(1, answered)), many(9, goes(1, slow)), one(goes(1, slow), stays(1))),
		"slow calls in between":        join(many(9, goes(1, answered), goes(1, slow)), one(goes(1, answered), goes(1, slow), stays(1))),
		"slow calls are no failures":   join(many(4, goes(1, failed)), one(goes(1, slow)), many(4, goes(1, failed)), one(goes(1, answered))),
		"a slow call before is over":   join(many(9, goes(1, slow)), many(20, goes(1, answered)), many(9, goes(1, slow)), one(goes(1, answered))),
		"closed again with no memory":  join(many(10, goes(0, slow)), one(probes(25*ms, answered)), many(9, goes(25*ms, slow)), one(goes(25*ms, answered))),
		"a single success is forgiven": join(many(5, goes(0, failed)), one(probes(25*ms, answered)), many(4, goes(30*ms, failed)), one(goes(30*ms, failed), stays(30*ms))),
	} {
		t.Run(name, func(t *testing.T) {
			var b breaker
			for i, c := range calls {
				may, probe := b.enter(c.at)
				assert.Equal(t, c.may, may, "call %d", i)
				assert.Equal(t, c.probe, probe, "call %d", i)
				if may {
					b.leave(c.at, probe, c.result)
				}
			}
		})
	}
}

// TestOneProbe checks that other calls do not wait for a probe, and that calls that
// began before the breaker opened do not disturb it.
func TestOneProbe(t *testing.T) {
	var b breaker
	for range failuresToOpen {
		b.leave(0, false, failed)
	}
	may, probe := b.enter(30 * ms)
	assert.True(t, may && probe)
	for range 100 {
		may, _ = b.enter(31 * ms)
		assert.False(t, may)
		b.leave(31*ms, false, failed)
		b.leave(31*ms, false, answered)
	}
	assert.EqualValues(t, firstWait, b.probeIn(31*ms), "the probe may take any time")
	b.leave(1000*ms, true, failed)
	assert.EqualValues(t, 2*firstWait, b.probeIn(1000*ms))
	may, _ = b.enter(1000*ms + 2*firstWait - 1)
	assert.False(t, may)
	assert.EqualValues(t, 1, b.probeIn(1000*ms+2*firstWait-1))
	may, probe = b.enter(1000*ms + 2*firstWait)
	assert.True(t, may && probe)
	b.leave(1100*ms, true, answered)
	may, probe = b.enter(1100 * ms)
	assert.True(t, may && !probe)
}
