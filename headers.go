package limit

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/fields"
	"github.com/routelimit/limit/internal/response"
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

	// OpenAI sets X-RateLimit-Limit-Requests, X-RateLimit-Remaining-Requests and
	// X-RateLimit-Reset-Requests (until the quota is full, such as 6m0s) for a rule that is named
	// requests, those with -Tokens for one that is named tokens, and so on. Rules without a
	// name of their own have none. A refusal also has Retry-After-Ms, and, if no wait helps or
	// it is longer than a minute, "X-Should-Retry: false". Clients of OpenAI and Anthropic obey
	// both, but wait for no longer.
	OpenAI

	// Anthropic sets Anthropic-RateLimit-Requests-Limit, -Remaining and -Reset (when the quota
	// is full, as in RFC 3339) for a rule that is named requests, and so on for tokens,
	// input-tokens and output-tokens. A refusal has what it has with OpenAI. Of both styles,
	// the inner of two sets on a request replaces the fields of rules that have the same name.
	Anthropic
)

// The names as net/http spells them; on the wire their case does not matter.
const (
	headerPolicy    = "Ratelimit-Policy"
	headerRateLimit = "Ratelimit"
	headerMarked    = "Ratelimit-Marked"
)

// setHeaders sets the headers of the decision: the quotas as [Options].Headers says
// and, on a refusal, Retry-After in whole seconds, rounded up, with
// [Options].Jitter. Policies stacked on one request (of a group and of a route)
// add their members to the same fields. The values and their text are put into the given
// room, which is theirs from then on, as far as it goes.
func (l *layer) setHeaders(h http.Header, values []string, text []byte) {
	d, style := &l.Decision, l.version.limiter.options.Headers
	refused := !d.Allowed && d.outcome != degraded
	var f response.Fields // a literal would be copied
	f.Header, f.Values, f.Text = h, values, text
	if (style == 0 || style&Draft11 != 0) && d.terms != nil && d.terms.Header != nil { // a barred client has no terms
		policy := d.terms.Header
		if !d.showsAll() {
			policy = []string{d.shownPolicy()}
		}
		if f.Text = appendRateLimit(f.Text, d); len(f.Text) > 0 {
			policies, states := h[headerPolicy], h[headerRateLimit] // an empty map answers at once
			h[headerPolicy] = response.Add(policies, policy)
			f.End(headerRateLimit, states)
		}
	}
	if refused {
		h["Cache-Control"] = response.NoStore
		if d.RetryAfter != Never {
			f.Text = strconv.AppendInt(f.Text, fields.Seconds(d.RetryAfter+d.jitter), 10)
			f.End("Retry-After", nil)
		}
	}
	if style&(XRateLimit|XRateLimitUnix) != 0 {
		l.appendNearest(&f, style, refused)
	}
	if style&(OpenAI|Anthropic) != 0 {
		d.appendNamed(&f, style)
		if refused && (d.RetryAfter == Never || d.RetryAfter+d.jitter > longestRetry) {
			h["X-Should-Retry"] = []string{"false"}
		}
		if refused && d.RetryAfter != Never {
			f.Text = strconv.AppendInt(f.Text, fields.In(d.RetryAfter+d.jitter, time.Millisecond), 10)
			f.End("Retry-After-Ms", nil)
		}
	}
}

// longestRetry is how long the clients of OpenAI and Anthropic wait. They would try again at once
// instead of waiting for longer.
const longestRetry = time.Minute

// appendNamed appends the fields of each rule that has a name.
func (d *Decision) appendNamed(f *response.Fields, style Headers) {
	for i := range d.of.Outcomes() {
		if d.policy.list[i].Name == "" || !d.shown(i) {
			continue
		}
		r := d.rule(i)
		if style&OpenAI != 0 {
			f.Quota("X-Ratelimit-", "-"+r.Name, r.Capacity, r.Remaining, fields.Span(r.ResetAfter))
		}
		if style&Anthropic != 0 {
			f.Quota("Anthropic-Ratelimit-"+r.Name+"-", "", r.Capacity, r.Remaining, fields.Time(d.At.Add(r.ResetAfter)))
		}
	}
}

// appendNearest appends the fields of the rule that is nearest to refusing.
func (l *layer) appendNearest(f *response.Fields, style Headers, refused bool) {
	r, ok := l.nearest()
	if !ok {
		return
	}
	if retry := l.Decision.RetryAfter; refused && r.RetryAfter < retry { // by a rule that has no header
		r.Remaining = 0
		if retry != Never {
			r.ResetAfter = max(r.ResetAfter, retry)
		}
	}
	if style&XRateLimitUnix != 0 {
		r.ResetAfter += core.Duration(l.Decision.At.UnixMicro()) // of.At is 0 if the client is barred
	}
	f.Values = slices.Grow(f.Values, 3)
	f.Text = strconv.AppendInt(f.Text, r.Capacity, 10)
	f.End("X-Ratelimit-Limit", nil)
	f.Text = strconv.AppendInt(f.Text, r.Remaining, 10)
	f.End("X-Ratelimit-Remaining", nil)
	f.Text = strconv.AppendInt(f.Text, fields.Seconds(r.ResetAfter), 10)
	f.End("X-Ratelimit-Reset", nil)
}

// nearest returns the rule of all sets on the request that refuses longest or, if none does, the one
// with the smallest share left. It is not ok if no rule appears in headers.
func (l *layer) nearest() (nearest RuleDecision, ok bool) {
	share := func(r *RuleDecision) float64 { return float64(r.Remaining) / float64(r.Capacity) }
	for ; l != nil; l = l.around() {
		for i := range l.Decision.of.Outcomes() {
			r := l.Decision.rule(i)
			if l.Decision.shown(i) && (!ok || r.RetryAfter > nearest.RetryAfter ||
				r.RetryAfter == nearest.RetryAfter && share(&r) < share(&nearest)) {
				nearest, ok = r, true
			}
		}
	}
	return nearest, ok
}

// appendRateLimit appends the RateLimit of a decision: for each rule what is left,
// and the seconds until there is more.
func appendRateLimit(b []byte, d *Decision) []byte {
	all, outcomes := d.showsAll(), d.of.Outcomes()
	for i, member := range d.policy.members {
		if member != "" && (all || d.shown(i)) {
			o := &outcomes[i]
			b = fields.Append(b, member, d.of.Remaining(i), max(o.MoreAfter, o.RetryAfter))
		}
	}
	return b
}

// showsAll reports whether all rules that may appear in headers do.
func (d *Decision) showsAll() bool { return !d.policy.hides && d.of.Caller.Exempt == 0 }

// shownPolicy returns RateLimit-Policy of the rules that appear in headers, or "".
func (d *Decision) shownPolicy() (policy string) {
	for i := range d.of.Outcomes() {
		if d.shown(i) {
			policy = fields.Join(policy, d.terms.Members[i])
		}
	}
	return policy
}

// setMarks tells the client which rules marked an admitted request.
func (d *Decision) setMarks(h http.Header) {
	shown := d.named(func(i int) bool { return d.marks(i) && !d.policy.list[i].Hidden })
	if shown != nil && d.policy.limiter.options.Headers != NoHeaders {
		h[headerMarked] = append(h[headerMarked], strings.Join(shown, ", "))
	}
}
