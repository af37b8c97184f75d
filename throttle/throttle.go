// Package throttle limits bandwidth: it slows the bodies of responses and requests
// to the bytes that rules allow. Nothing is refused, buffered or cut.
//
//	mux.Handle("GET /files/", throttle.Limit(limiter, limit.Rules(
//		throttle.Bandwidth(limit.ByUser, time.Second, 100_000)), nil)(files))
//
// In any time t, a key gets at most Burst + t * Limit / Window bytes since its quota was full, over
// all its connections and all processes on the store. A Throttle takes permits for about a tenth of
// a second of bytes ahead, first come, first served; a Burst below one permit counts as one permit.
// A permit is for bytes at hand, and for up to a quarter of what has passed. What is left of it is
// lost when the body ends before its Content-Length, or has none.
//
// A server's WriteTimeout and ReadTimeout count the waiting, and cut the body: leave
// them 0, or set a deadline for each request with [http.ResponseController].
//
// While the store is unavailable, this process applies the rules by itself, as a handler of package
// limit does: see limit.Options.Instances. An error that a client could cause ends the body, and is
// logged and observed.
package throttle

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/adapter"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/rules"
)

// Bandwidth returns a rule of bytes: all requests that share a key share this many bytes per
// window. Set its Burst to change how many bytes may come at once; without it they are those of a
// window.
func Bandwidth(key limit.KeyResolver, window time.Duration, bytes int64) limit.Rule {
	return limit.Rule{Key: key, Limit: bytes, Window: window, Algorithm: limit.TokenBucket{}}
}

// Bodies says which bytes a rule counts.
type Bodies uint8

// What a [Throttle] slows.
const (
	Downloads Bodies = iota // the bodies of responses
	Uploads                 // the bodies of requests
	Both                    // both, on one quota
)

// suffixes keep the quotas of bytes apart from each other and from those of requests, if one set is
// used for both.
var suffixes = [...]string{Downloads: ".downloads", Uploads: ".uploads", Both: ".bytes"}

// Options configures a [Throttle]. The zero Options is ready to use.
type Options struct {
	// Of says which bodies are slowed. The zero value means [Downloads].
	Of Bodies

	// Free is how many bytes of each body pass first, at full speed and
	// uncounted. A client that asks for a file in many ranges gets them for each.
	Free int64
}

// A Throttle is a rule set of bytes, bound to a limiter. It is safe for concurrent use.
type Throttle struct {
	rules   limit.RuleSet // of queues
	policy  *limit.Policy
	options Options
	chunk   int64        // bytes: the usual permit
	buckets []limit.Rule // the rules that were given
}

// New binds rules to a limiter. Each is a token bucket of bytes, as [Bandwidth] makes it, without
// Missing, Cost and Settle. Options may be nil. The error joins one [*rules.Error] for each thing
// wrong with the rules and the options.
func New(limiter *limit.Limiter, set limit.RuleSet, options *Options) (*Throttle, error) {
	t := &Throttle{chunk: math.MaxInt64}
	if options != nil {
		t.options = *options
	}
	var errs []error
	if t.options.Free < 0 {
		errs = append(errs, &rules.Error{Problem: fmt.Sprintf("%d bytes free: write 0 or more", t.options.Free)})
	}
	if t.options.Of > Both {
		errs = append(errs, &rules.Error{Problem: fmt.Sprintf(
			"bodies %d: write throttle.Downloads, throttle.Uploads or throttle.Both", t.options.Of)})
		t.options.Of = Downloads
	}
	if set.Others() != nil {
		errs = append(errs, set.Errorf(-1, "a Throttle waits for the rules of one set: leave out With, and put a Throttle of each set on the route"))
	}
	var invalid error
	t.rules, invalid = set.Derive(suffixes[t.options.Of], func(r limit.Rule) limit.Rule {
		for _, problem := range problems(r) {
			errs = append(errs, set.Errorf(len(t.buckets), "%s", problem))
		}
		t.buckets = append(t.buckets, r)
		return queue(r)
	})
	if err := errors.Join(invalid, errors.Join(errs...)); err != nil {
		return nil, err
	}
	var err error
	if t.policy, err = limiter.Policy(t.rules); err != nil {
		return nil, err
	}
	for _, r := range t.buckets {
		t.chunk = min(t.chunk, chunk(r))
	}
	return t, nil
}

// Limit returns net/http middleware for one route. It is [Throttle.Handler] of a new
// Throttle, and panics if [New] returns an error.
func Limit(limiter *limit.Limiter, set limit.RuleSet, options *Options) func(http.Handler) http.Handler {
	t, err := New(limiter, set, options)
	if err != nil {
		panic(err)
	}
	return t.Handler
}

// Handler returns a handler that calls next with every request, and slows the bodies. Its scope is
// that of [limit.Policy.Handler], and it panics where that does.
//
// A wait ends with the context of the request; Write or Read then returns its error. For a client
// that limit.Options.Bar bars they return a [*limit.RefusedError], and for one that Exempt exempts
// they do not wait.
func (t *Throttle) Handler(next http.Handler) http.Handler {
	_ = t.policy.Handler(next) // panics if the set cannot stand there
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(t.slow(w, r, func(slowed *http.Request, bytes int64) (limit.Decision, error) {
			return behindMux.Decide(t.policy, slowed, r, bytes)
		}))
	})
}

var behindMux = &adapter.Adapter[*http.Request]{Route: func(r *http.Request) (method, pattern string) { return "", r.Pattern }}

// problems returns what is wrong with a valid rule as a rule of bytes.
func problems(r limit.Rule) (list []string) {
	bucket, ok := r.Algorithm.(limit.TokenBucket)
	if !ok {
		return []string{"not a token-bucket, by which bytes are counted: write throttle.Bandwidth(key, window, bytes)"}
	}
	if bucket.Missing != 0 {
		list = append(list, fmt.Sprintf("%d missing: a bucket of bytes begins full: leave it out", bucket.Missing))
	}
	if r.Cost != (rules.Cost{}) {
		list = append(list, "a Cost: the cost of a body is its bytes: leave it out")
	}
	if r.Settle != (rules.Settlement{}) {
		list = append(list, "a Settle: bytes are counted as they pass: leave it out")
	}
	if r.OnRefusal != (limit.Refusal{}) || r.Shadow != nil {
		list = append(list, "a body is slowed and never refused: leave out OnRefusal and Shadow")
	}
	if r.Plans != nil || r.Reserve != nil || r.Exempt != nil {
		list = append(list, "a rate of bytes is the same for all callers: leave out Plans, Reserve and Exempt, and write a set for each plan")
	}
	return list
}

// Bounds on permits. A permit is about as many bytes as a key gets in chunkTime, so
// that the store is asked ten times a second for each key at its limit, however
// many connections share it.
const (
	chunkTime = 100 * time.Millisecond
	minChunk  = 1 << 10 // unless that takes more than a second
	maxChunk  = 1 << 20
	queueTime = 10 * time.Second // a body whose slot would come later asks again
)

// chunk returns the usual permit of a rule.
func chunk(r limit.Rule) int64 {
	return min(max(bytesIn(r, chunkTime), minChunk), maxChunk, max(1, bytesIn(r, time.Second)))
}

// bytesIn returns how many bytes a rule allows in a time, for an invalid rule too.
func bytesIn(r limit.Rule, t time.Duration) int64 {
	bytes, _ := core.MulDiv(max(0, r.Limit), t.Microseconds(), max(1, r.Window.Microseconds()))
	return bytes
}

func burst(r limit.Rule) int64 {
	bucket, _ := r.Algorithm.(limit.TokenBucket)
	return cmp.Or(bucket.Burst, r.Limit)
}

// ahead returns how long the burst of a rule takes at the rate of a caller, which an override may
// have set, and that rate. A burst that is not written is that of the lower rate.
func ahead(r limit.Rule, rate int64) (time.Duration, limit.Rule) {
	of := r
	of.Limit = max(1, rate)
	full, _ := core.MulDiv(max(min(burst(of), burst(r)), min(chunk(of), chunk(r))), r.Window.Microseconds(), of.Limit)
	return time.Duration(min(full, math.MaxInt64/1000)) * time.Microsecond, of
}

// queue returns the queue that a bucket of bytes is. A permit gets the slot at which its last byte
// has passed at the rate, and goes on when that is no more than the burst away. So the bytes that
// pass are those of the bucket, in the order in which they were asked for.
func queue(r limit.Rule) limit.Rule {
	return limit.Rule{Key: r.Key, Limit: r.Limit, Window: r.Window, OnStoreError: r.OnStoreError,
		Algorithm: limit.Queue{Burst: min(core.MaxLimit, max(burst(r), chunk(r))+bytesIn(r, queueTime))}}
}
