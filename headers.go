package limit

import (
	"net/http"
	"strconv"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/fields"
)

// Headers says which headers tell clients of their quotas. Values combine:
// Draft11 | XRateLimit.
type Headers uint8

const (
	// Draft11 sets RateLimit and RateLimit-Policy, with a member for each rule, as in
	// draft-ietf-httpapi-ratelimit-headers-11. A later draft gets another name.
	Draft11 Headers = 1 << iota

	// XRateLimit sets X-RateLimit-Limit (the most that can remain: for a bucket its burst),
	// X-RateLimit-Remaining and X-RateLimit-Reset (seconds from now until the quota is full)
	// for the rule that is nearest to refusing.
	XRateLimit

	// XRateLimitUnix is XRateLimit with X-RateLimit-Reset in Unix time, as
	// ulule/limiter and go-chi/httprate send it.
	XRateLimitUnix

	// NoHeaders alone sets none. A refusal still has its Retry-After.
	NoHeaders
)

// The names as net/http spells them; on the wire their case does not matter.
const (
	headerPolicy    = "Ratelimit-Policy"
	headerRateLimit = "Ratelimit"
)

// setHeaders sets the headers of a decision: the quotas as [Options].Headers says
// and, on a refusal, Retry-After in whole seconds, rounded up, with
// [Options].Jitter. Policies stacked on one request (of a group and of a route)
// add their members to the same fields.
func setHeaders(h http.Header, d *Decision) {
	style := d.policy.limiter.options.Headers
	draft := (style == 0 || style&Draft11 != 0) && d.terms.header != ""
	refused := !d.Allowed && d.outcome != degraded
	retry := refused && d.RetryAfter != Never

	// One allocation for the texts, and one for the slices of all fields.
	var room [128]byte
	b := room[:0]
	if draft {
		b = appendRateLimit(b, d)
	}
	end := len(b)
	if retry {
		b = strconv.AppendInt(b, d.retrySeconds(), 10)
	}
	text := string(b)
	values := new([4]string)
	if draft {
		values[0], values[1] = d.terms.header, text[:end]
		if d.policy.hides || d.of.Caller.Exempt != 0 {
			values[0], values[1] = d.shownFields()
		}
	}
	if values[0] != "" {
		h[headerPolicy] = add(h[headerPolicy], values[0:1:1])
		h[headerRateLimit] = add(h[headerRateLimit], values[1:2:2])
	}
	if refused {
		values[2] = "no-store"
		h["Cache-Control"] = values[2:3:3]
	}
	if retry {
		values[3] = text[end:]
		h["Retry-After"] = values[3:4:4]
	}
	if style&(XRateLimit|XRateLimitUnix) != 0 {
		r, ok := d.nearest()
		if !ok {
			return
		}
		if refused && r.RetryAfter < d.RetryAfter { // a rule that has no header refuses for longer
			r.Remaining = 0
			if d.RetryAfter != Never {
				r.ResetAfter = max(r.ResetAfter, d.RetryAfter)
			}
		}
		reset := r.ResetAfter
		if style&XRateLimitUnix != 0 {
			reset += core.Duration(d.of.At)
		}
		h.Set("X-RateLimit-Limit", strconv.FormatInt(r.Capacity, 10))
		h.Set("X-RateLimit-Remaining", strconv.FormatInt(r.Remaining, 10))
		h.Set("X-RateLimit-Reset", strconv.FormatInt(fields.Seconds(reset), 10))
	}
}

// add returns the values of a field with one more. Most have none before.
func add(values, one []string) []string {
	if values == nil {
		return one
	}
	return append(values, one...)
}

// setUndecidedHeaders sets the headers of a request that could not be decided.
// Nothing is known of its quotas.
func setUndecidedHeaders(h http.Header) {
	h["Cache-Control"] = []string{"no-store"}
	h["Retry-After"] = []string{"1"}
}

// nearest returns the rule that refuses longest or, if none does, the one with
// the smallest share left. It is not ok if no rule appears in headers.
func (d *Decision) nearest() (nearest RuleDecision, ok bool) {
	share := func(r *RuleDecision) float64 { return float64(r.Remaining) / float64(r.Capacity) }
	for i := range d.of.Outcomes() {
		r := d.rule(i)
		if d.shown(i) && (!ok || r.RetryAfter > nearest.RetryAfter ||
			r.RetryAfter == nearest.RetryAfter && share(&r) < share(&nearest)) {
			nearest, ok = r, true
		}
	}
	return nearest, ok
}

// appendRateLimit appends the RateLimit of a decision: for each rule what is left,
// and the seconds until there is more.
func appendRateLimit(b []byte, d *Decision) []byte {
	separator := ""
	for i, o := range d.of.Outcomes() {
		if d.policy.members[i] != "" {
			b = append(append(b, separator...), d.policy.members[i]...)
			b = fields.Append(b, d.of.Remaining(i), max(o.MoreAfter, o.RetryAfter))
			separator = ", "
		}
	}
	return b
}

// state returns the value of RateLimit, or "" without one.
func (d *Decision) state() (state string) {
	if d.policy.hides || d.of.Caller.Exempt != 0 {
		_, state = d.shownFields()
		return state
	}
	return string(appendRateLimit(nil, d))
}

// shownFields returns RateLimit-Policy and RateLimit of the rules that appear in headers,
// or "".
func (d *Decision) shownFields() (policy, state string) {
	for i, o := range d.of.Outcomes() {
		if d.shown(i) {
			policy = fields.Join(policy, d.terms.members[i])
			state = fields.Join(state, string(fields.Append([]byte(d.policy.members[i]), d.of.Remaining(i), max(o.MoreAfter, o.RetryAfter))))
		}
	}
	return policy, state
}

// The header of marked requests, as net/http spells it.
const headerMarked = "Ratelimit-Marked"

// setMarks tells the client which rules marked an admitted request.
func (d *Decision) setMarks(h http.Header) {
	field := ""
	for i := range d.of.Outcomes() {
		if d.marks(i) && !d.policy.list[i].Hidden {
			if field != "" {
				field += ", "
			}
			field += d.policy.names[i]
		}
	}
	if field != "" && d.policy.limiter.options.Headers != NoHeaders {
		h[headerMarked] = append(h[headerMarked], field)
	}
}

// retrySeconds returns the Retry-After of a refusal, which is the same each time it
// is asked.
func (d *Decision) retrySeconds() int64 {
	return fields.Seconds(d.RetryAfter + d.jitter)
}

// setBarredHeaders sets the headers of a barred request.
func setBarredHeaders(h http.Header, d *Decision) {
	h["Cache-Control"] = []string{"no-store"}
	if d.RetryAfter != Never {
		h["Retry-After"] = []string{strconv.FormatInt(d.retrySeconds(), 10)}
	}
}
