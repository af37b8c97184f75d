package storetest

import "github.com/routelimit/limit/core"

// leaving returns m with a charge that leaves units to others.
func leaving(reserve int64, m met) met { m.charge.Reserve = reserve; return m }

// reserves tests charges that leave units to others.
func reserves() []script {
	five, other := on("a", 5, 10*ms), on("b", 1, 30*ms)
	bucket := by("t", core.Quota{Algorithm: core.TokenBucket, Limit: 1, Window: 10 * ms, Burst: 3})
	return []script{
		{"the last units are left", []row{
			at(0, leaving(2, five(3, fits(2, 10*ms, 10*ms)))),
			at(1*ms, leaving(2, five(1, short(2, 9*ms, 9*ms)))),
			at(1*ms, leaving(1, five(1, fits(1, 9*ms, 10*ms)))),
			at(2*ms, five(1, fits(0, 8*ms, 10*ms))),
			at(2*ms, leaving(5, five(0, fits(0, 8*ms, 10*ms)))),
			at(10*ms-1, leaving(2, five(1, short(0, 1, 2*ms+1)))),
			at(10*ms, leaving(2, five(1, fits(2, 1*ms, 10*ms)))),
		}},
		{"more than there can be", []row{
			at(0, leaving(5, five(1, never(5, 0)))),
			at(0, leaving(core.MaxCost, five(1, never(5, 0)))),
			at(0, leaving(core.MaxCost, five(core.MaxCost, never(5, 0)))),
			at(0, leaving(4, five(1, fits(4, 10*ms, 10*ms)))),
		}},
		{"all or nothing", []row{
			at(0, leaving(4, five(1, fits(4, 10*ms, 10*ms))), other(1, fits(0, 30*ms, 30*ms))),
			at(1*ms, leaving(4, five(1, short(4, 9*ms, 9*ms))), other(0, fits(0, 29*ms, 29*ms))),
			at(30*ms, leaving(5, five(1, never(5, 0))), other(1, fits(1, 0, 0))),
		}},
		{"a bucket", []row{
			at(0, leaving(1, bucket(2, fits(1, 10*ms, 20*ms)))),
			at(5*ms, leaving(1, bucket(1, short(1, 5*ms, 15*ms)))),
			at(10*ms, leaving(1, bucket(1, fits(1, 10*ms, 20*ms)))),
		}},
	}
}
