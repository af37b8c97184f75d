// Package notice has the codes of the warnings that operators see, and limits
// how often clients can have one written.
package notice

import (
	"log/slog"
	"sync/atomic"
	"time"
)

// The codes never change their meaning. docs/diagnostics.md explains each.
const (
	SecondRoute       = "LIMIT-101" // an unnamed rule set met a second route
	ChargedTwice      = "LIMIT-102" // one request charged a quota twice
	NoRoute           = "LIMIT-103" // an unnamed rule set met a request without a route
	LimiterPerRequest = "LIMIT-104" // New was called while a request was served
	UntrustedProxy    = "LIMIT-105" // forwarding headers arrive, but no proxy is trusted
	NoPathValue       = "LIMIT-106" // a rule is keyed by a path value that the route does not have
	LateUser          = "LIMIT-107" // a rule by user was decided before authentication
	SilentProxy       = "LIMIT-108" // a trusted proxy sent no client address
	SharedPattern     = "LIMIT-109" // two sets are on one pattern without a method
	DifferentRules    = "LIMIT-110" // two sets on one route have different rules of one name
	Undecided         = "LIMIT-201" // a request could not be decided
	Unsettled         = "LIMIT-202" // an admitted request could not be settled
	LeaseLost         = "LIMIT-203" // a request lost a lease that it held
	Overflow          = "LIMIT-204" // more keys than MaxKeys: new keys share quotas
	Outage            = "LIMIT-205" // requests are decided without the store
	InvalidPolicies   = "LIMIT-210" // a policy file, or one that was pushed, is not in force
)

// Every is the least time between two lines of one kind.
const Every = time.Minute

// A Throttle limits a log line to one per interval. The zero Throttle is ready
// to use, and safe for concurrent use. Callers make the line only when it is
// due, since they are on the path of a request.
type Throttle struct {
	last    atomic.Pointer[time.Time]
	skipped atomic.Int64
}

// Due reports whether the line may be written now, and how many lines were
// skipped since the last one. Of several concurrent callers, one is told true.
func (t *Throttle) Due(now time.Time, every time.Duration) (skipped int64, due bool) {
	last := t.last.Load()
	if last != nil && now.Sub(*last) < every || !t.claim(last, now) {
		t.skipped.Add(1)
		return 0, false
	}
	return t.skipped.Swap(0), true
}

func (t *Throttle) claim(last *time.Time, now time.Time) bool {
	return t.last.CompareAndSwap(last, &now)
}

// Warn writes a line if it is due: the code first, then args.
func (t *Throttle) Warn(log *slog.Logger, code, text string, args ...any) {
	if skipped, due := t.Due(time.Now(), Every); due {
		Write(log, code, text, skipped, args...)
	}
}

// Write writes a line.
func Write(log *slog.Logger, code, text string, skipped int64, args ...any) {
	args = append([]any{"code", code}, args...)
	if skipped > 0 {
		args = append(args, "skipped", skipped)
	}
	log.Warn(text, args...)
}
