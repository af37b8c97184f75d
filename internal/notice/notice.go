// Package notice has the codes of the warnings that operators see, and limits
// how often clients can have one written.
package notice

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"
)

// The codes never change their meaning. docs/diagnostics.md explains each.
const (
	SecondRoute     = "LIMIT-101" // an unnamed rule set met a second route
	ChargedTwice    = "LIMIT-102" // one request charged a quota twice
	NoRoute         = "LIMIT-103" // an unnamed rule set met a request without a route
	UntrustedProxy  = "LIMIT-105" // forwarding headers arrive, but no proxy is trusted
	NoPathValue     = "LIMIT-106" // a rule is keyed by a path value that the route does not have
	LateUser        = "LIMIT-107" // a rule by user was decided before authentication
	SilentProxy     = "LIMIT-108" // a trusted proxy sent no client address
	SharedPattern   = "LIMIT-109" // two sets are on one pattern without a method
	DifferentRules  = "LIMIT-110" // two sets on one route have different rules of one name
	NoUsers         = "LIMIT-111" // a rule by user has met no user
	SeveralMemories = "LIMIT-112" // quotas in memory, in a program of several instances
	BadOverride     = "LIMIT-113" // Options.Override returned a limit that the rule cannot have
	Undeclared      = "LIMIT-114" // policies were changed that the program does not declare
	UnknownClass    = "LIMIT-115" // a request has a class that is not declared
	NoListedUsers   = "LIMIT-116" // Exempt or Bar asks for users, and no request has one
	ExemptProxy     = "LIMIT-117" // an exempt list contains a trusted proxy
	UnmetRoutes     = "LIMIT-118" // no request has met some routes of a policy file
	MoreInstances   = "LIMIT-119" // more processes share the store than Instances says
	FreeAttempts    = "LIMIT-120" // a set before authentication counts no attempts
	Undecided       = "LIMIT-201" // a request could not be decided
	Unsettled       = "LIMIT-202" // an admitted request could not be settled
	LeaseLost       = "LIMIT-203" // a request lost a lease that it held
	Overflow        = "LIMIT-204" // more keys than MaxKeys: new keys share quotas
	Outage          = "LIMIT-205" // requests are decided without the store
	InvalidPolicies = "LIMIT-206" // a policy file, or one that was pushed, is not in force
	PoliciesLifted  = "LIMIT-207" // a policy file lifts limits that were in force
	Forgiven        = "LIMIT-208" // a request cost more than its rule may owe
	HoldsEnded      = "LIMIT-209" // what was held came back without being settled
	Unheld          = "LIMIT-210" // a request with Hold was admitted, and could not be held
	Unreachable     = "LIMIT-301" // Redis does not answer, or not this user
	RefusesWrites   = "LIMIT-302" // Redis cannot be written
	NoPermission    = "LIMIT-303" // the Redis user may not run what a decision needs
	Evicts          = "LIMIT-304" // Redis evicts keys when memory is full
	NoInfo          = "LIMIT-305" // the Redis user may not run INFO
	Clock           = "LIMIT-306" // the clock of Redis differs from that of this machine
	NoConnection    = "LIMIT-307" // all connections of the client of Redis are in use

	ControlUnread    = "LIMIT-401" // the documents of a control cannot be read
	ControlRights    = "LIMIT-402" // the Redis user may not run what package control needs
	ControlInvalid   = "LIMIT-403" // Redis has documents that are none
	ControlLost      = "LIMIT-404" // Redis has lost documents
	ListUnread       = "LIMIT-405" // the file of a list cannot be read
	BanIgnored       = "LIMIT-406" // a ban is no entry, or one agent too many
	OverridesInvalid = "LIMIT-408" // Redis has overrides that are none
)

// Codes lists the codes that limit.Options.Silence takes. Those of packages control,
// access and overrides (4xx) follow the Log of their own options.
var Codes = []string{SecondRoute, ChargedTwice, NoRoute, UntrustedProxy, NoPathValue, LateUser, SilentProxy,
	SharedPattern, DifferentRules, NoUsers, SeveralMemories, BadOverride, Undeclared, UnknownClass,
	NoListedUsers, ExemptProxy, UnmetRoutes, MoreInstances, FreeAttempts, Undecided, Unsettled, LeaseLost, Overflow, Outage,
	InvalidPolicies, PoliciesLifted, Forgiven, HoldsEnded, Unheld, Unreachable, RefusesWrites, NoPermission, Evicts, NoInfo, Clock, NoConnection}

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

// A Log writes lines, except those with a silenced code.
type Log struct {
	To       *slog.Logger // nil means the default one, as it is when a line is written
	Silenced []string
}

// Silent reports whether a code is silenced.
func (l *Log) Silent(code string) bool { return slices.Contains(l.Silenced, code) }

// Logger returns a logger for lines with a code, of which it drops the silenced ones.
func (l *Log) Logger() *slog.Logger {
	if len(l.Silenced) == 0 {
		return l.To
	}
	return slog.New(filter{l})
}

func (l *Log) to() *slog.Logger {
	if l.To != nil {
		return l.To
	}
	return slog.Default() // as it is now
}

// A filter drops lines with a silenced code. Its lines have no further attributes.
type filter struct{ *Log }

func (f filter) Enabled(ctx context.Context, level slog.Level) bool {
	return f.to().Enabled(ctx, level)
}
func (f filter) WithAttrs([]slog.Attr) slog.Handler { return f }
func (f filter) WithGroup(string) slog.Handler      { return f }

func (f filter) Handle(ctx context.Context, r slog.Record) error {
	silent := false
	r.Attrs(func(a slog.Attr) bool {
		silent = silent || a.Key == "code" && f.Silent(a.Value.String())
		return !silent
	})
	if silent {
		return nil
	}
	return f.to().Handler().Handle(ctx, r)
}

// Warn writes a line if it is due: the code first, then args.
func (t *Throttle) Warn(log *Log, code, text string, args ...any) {
	if skipped, due := t.Due(time.Now(), Every); due {
		Write(log, code, text, skipped, args...)
	}
}

// Write writes a line, unless its code is silenced.
func Write(log *Log, code, text string, skipped int64, args ...any) {
	if log.Silent(code) {
		return
	}
	args = append([]any{"code", code}, args...)
	if skipped > 0 {
		args = append(args, "skipped", skipped)
	}
	log.to().Warn(text, args...)
}
