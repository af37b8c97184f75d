package limit

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"net/http"
	"time"

	"github.com/routelimit/limit/core"
)

// Bandwidth returns a rule for [Limiter.Throttle]: all requests that share a
// key get so many bytes a window together. Set its Burst to change how many of
// them may come at once, which is all of a window's otherwise.
func Bandwidth(key KeyResolver, window time.Duration, bytes int64) Rule {
	return Rule{Key: key, Limit: bytes, Window: window, Algorithm: TokenBucket}
}

// Bodies says whose bytes a rule counts.
type Bodies uint8

// What a [Throttler] slows.
const (
	Downloads Bodies = iota // the bodies of responses
	Uploads                 // the bodies of requests
	Both                    // both, which then share one quota
)

// bodies are the words that begin the names of policies that count bytes. The
// space behind them is in no other name.
var bodies = [...]string{Downloads: "downloads ", Uploads: "uploads ", Both: "bytes "}

// ThrottleOptions configures [Limiter.Throttle]. The zero ThrottleOptions is
// ready to use.
type ThrottleOptions struct {
	// Of says which bodies are slowed. The zero value means [Downloads].
	Of Bodies

	// Free is how many bytes of each body pass first, at full speed and
	// uncounted. 0 means none. A client that asks for a file in many ranges
	// gets them for each.
	Free int64
}

// A Throttler is a [RuleSet] whose units are bytes, bound to a [Limiter]. It is
// what adapters call; see [Limiter.Throttler]. It is safe for concurrent use.
type Throttler struct {
	policy  *Policy
	options ThrottleOptions
	chunk   int64   // bytes: the usual permit
	bursts  []int64 // for each rule, µs that its burst takes
}

// Throttler binds rules to the limiter, for adapters. Each rule is a
// [TokenBucket] of bytes, as [Bandwidth] makes it. The error joins one
// [*RuleError] for each thing wrong with the rules and the options, which may be
// nil.
func (l *Limiter) Throttler(rules RuleSet, options *ThrottleOptions) (*Throttler, error) {
	return l.throttler(rules, options, l.options.User != nil)
}

// ThrottlerWithUser is [Limiter.Throttler] for an adapter that sets [Call].User.
func (l *Limiter) ThrottlerWithUser(rules RuleSet, options *ThrottleOptions) (*Throttler, error) {
	return l.throttler(rules, options, true)
}

func (l *Limiter) throttler(rules RuleSet, options *ThrottleOptions, hasUser bool) (*Throttler, error) {
	t := &Throttler{}
	if options != nil {
		t.options = *options
	}
	errs := []error{rules.check(hasUser)}
	for _, r := range rules.rules {
		for _, problem := range r.byteProblems() {
			errs = append(errs, &RuleError{Rule: r.String(), Problem: problem})
		}
	}
	if t.options.Free < 0 {
		errs = append(errs, &RuleError{Problem: fmt.Sprintf("%d bytes free: write 0 or more", t.options.Free)})
	}
	if t.options.Of > Both {
		errs = append(errs, &RuleError{Problem: fmt.Sprintf(
			"bodies %d: write limit.Downloads, limit.Uploads or limit.Both", t.options.Of)})
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	rules.bytes = bodies[t.options.Of]
	var err error
	if t.policy, err = l.bind(rules); err != nil {
		return nil, err
	}
	t.chunk = math.MaxInt64
	for _, r := range rules.rules {
		t.chunk = min(t.chunk, chunk(r.quota()))
	}
	for _, r := range rules.rules {
		q := r.quota()
		t.bursts = append(t.bursts, muldiv(max(q.Burst, chunk(q)), q.Window, q.Limit))
	}
	return t, nil
}

// byteProblems returns what a throttle has against a rule that is in order
// otherwise.
func (r Rule) byteProblems() []string {
	if r.Algorithm != TokenBucket {
		return []string{fmt.Sprintf("algorithm %v: bytes are counted by a token-bucket: "+
			"write limit.Bandwidth(key, window, bytes)", r.Algorithm)}
	}
	var list []string
	if r.Missing != 0 {
		list = append(list, fmt.Sprintf("%d missing: a bucket of bytes begins full: leave it out", r.Missing))
	}
	if r.Cost != nil {
		list = append(list, "a Cost: the cost of a body is its bytes: leave it out")
	}
	if r.Settle != nil {
		list = append(list, "a Settle: bytes are counted as they pass: leave it out")
	}
	if len(r.problems()) == 0 {
		list = append(list, problemsOf(lineQuota(r.quota()).Validate())...)
	}
	return list
}

// Throttle returns a handler that calls next with every request, and slows the
// bodies of the responses or the requests, so that each rule gets the bytes
// that it says: Limit a Window, and Burst at once. What waits is the handler, in
// Write and Read; nothing is buffered, refused or cut. It panics if the rules
// are invalid. Options may be nil.
//
// The quotas are those of [Handler], but never the same: a set counts requests
// there and bytes here, and on downloads, uploads and both for each. In any time
// t a key gets at most Burst + t * Limit / Window bytes since it was whole, in
// permits of about a tenth of a second, first come, first served; a Burst below
// one permit is one permit. A body whose client goes away loses its permit, and
// one that ends may lose up to a quarter of its length, if it has no
// Content-Length.
//
// The server's WriteTimeout and ReadTimeout count the waiting, and then cut the
// body: leave them 0, or set a deadline for each request with
// [http.ResponseController].
//
// A wait ends with the context of the request, whose error Write or Read then
// returns. While the store is out of reach, this process keeps the rules alone,
// as those of a handler: see [Options].Instances and [OnError]. Errors that a
// client could cause end the body; [Options].Observe is told.
func (l *Limiter) Throttle(rules RuleSet, next http.Handler, options *ThrottleOptions) http.Handler {
	t, err := l.Throttler(rules, options)
	if err != nil {
		panic(err)
	}
	patternOf := patterns(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(t.Slow(w, Call{Request: r, Pattern: patternOf(r)}))
	})
}

// Bounds on permits. A permit is about as many bytes as a key gets in
// chunkTime, so that a store is asked ten times a second for each key that is
// at its limit, however many connections share it.
const (
	chunkTime = 100_000 // µs
	minChunk  = 1 << 10 // unless that takes more than a second
	maxChunk  = 1 << 20
	lineTime  = 10_000_000 // µs; whose turn would be later asks again
)

// chunk returns the usual permit of a bucket of bytes.
func chunk(q core.Quota) int64 {
	tenth := muldiv(q.Limit, chunkTime, q.Window)
	second := muldiv(q.Limit, 1_000_000, q.Window)
	return min(max(tenth, minChunk), maxChunk, max(1, second))
}

// lineQuota returns the queue that a bucket of bytes is: whoever takes a permit is
// told when its last byte has passed at the rate, and goes on when that is no
// more than the burst away. The bytes that go on are then those of the bucket,
// and their order is that in which they were asked for.
func lineQuota(q core.Quota) core.Quota {
	waiting := muldiv(q.Limit, lineTime, q.Window)
	return core.Quota{Algorithm: Queue, Limit: q.Limit, Window: q.Window,
		Burst: min(core.MaxLimit, max(q.Burst, chunk(q))+waiting)}
}

// muldiv returns a*b/c rounded down, for numbers that are not negative.
func muldiv(a, b, c int64) int64 {
	high, low := bits.Mul64(uint64(a), uint64(b))
	if high >= uint64(c) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(high, low, uint64(c))
	return int64(min(q, math.MaxInt64))
}
