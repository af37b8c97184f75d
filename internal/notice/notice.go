// Package notice has the codes of the warnings that operators see, and limits
// how often clients can have one written.
package notice

import (
	"cmp"
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

// A Throttle limits a log line to one per interval. The zero Throttle is ready to use, and safe for
// concurrent use. Callers make the line only when it is due, since they are on the path of a
// request.
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

// to is the logger as it is now.
func (l *Log) to() *slog.Logger { return cmp.Or(l.To, slog.Default()) }

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

// texts are the lines of package limit, each written in one way.
var texts = map[string]string{
	SecondRoute: "limit: a rule set made by limit.Rules covers several routes or methods: write limit.Named for " +
		"one quota of all, or limit.EachRoute if each is meant to count alone",
	ChargedTwice: "limit: one request was charged to one quota twice: remove one of the two rule sets, or give the " +
		"rule another Name in one of them",
	NoRoute: "limit: a rule set without a name met a request without a route: all such requests share one " +
		"quota; write limit.Named",
	UntrustedProxy: "limit: a request has a forwarding header, and limit.Options.Proxies does not trust its peer: " +
		"if the peer is your proxy, add it to Proxies.Trusted: until then all its clients share one quota, and what exempts its address exempts them all. " +
		"Otherwise a client sent the header, and the line can be ignored",
	NoUsers: "limit: a rule by user has met no user so far, so all requests share its quota: " +
		"put authentication before the rules, have the User function return its user, or write \"per user or ip\"",
	NoPathValue: "limit: a rule is keyed by a path value that its route does not have: all requests of the route " +
		"share one quota",
	LateUser: "limit: a rule by user was decided before authentication, so all users share one quota: put " +
		"authentication before the rules",
	SilentProxy: "limit: a trusted proxy sent no client address: its clients share the quota of its own address; " +
		"configure the proxy to send the header. Ignore this line for health checks by the proxy itself",
	SharedPattern: "limit: two rule sets are on one pattern, which has no method, so they share the quotas of equal " +
		"rules: where they are on two methods, write limit.Named for each",
	DifferentRules: "limit: two rule sets on one route have different rules of one name: each counts alone; give one " +
		"of the rules another Name, or write limit.Named",
	BadOverride: "limit: Options.Override returned a limit that the rule cannot have",
	Undeclared: "limit: policies were changed that the program does not declare, so their rules apply to no " +
		"request: correct their names, declare them, or name their routes in the file",
	UnknownClass: "limit: a request has a class that limit.Options.Classes does not list, and counts as default",
	NoListedUsers: "limit: Exempt or Bar asks for users, and no request had one so far, so entries of users have no " +
		"effect: set Caller.User of limit.Options or of your adapter, and put authentication before the " +
		"rules",
	MoreInstances: "limit: more processes share the store than Instances says, so that during an outage all of them " +
		"together admit more than the limits: set limit.Options.Instances to their number",
	FreeAttempts: "limit: a rule set before authentication gives back what a rule by user refuses behind it, so a user " +
		"over the limit is authenticated as often as it likes: write attempts in a rule before authentication",
	Undecided: "limit: a request could not be decided",
	Unsettled: "limit: an admitted request could not be settled",
	Unheld: "limit: admitted requests with Hold could not be held: a repeat is charged again, and nothing comes back if " +
		"the process dies; outside an outage, raise MaxKeys",
	HoldsEnded: "limit: holds ended that nobody settled or extended: what they took came back; settle what is reserved",
	Forgiven: "limit: a request cost more than its rules may owe: the rest is not charged; reserve more, or " +
		"write a larger debt",
	LeaseLost: "limit: a request lost a lease that it held",
	Overflow:  "limit: more keys than MaxKeys: new keys share quotas, and may be refused early",
}

// Say writes the line of a code, with args.
func (l *Log) Say(code string, args ...any) { Write(l, code, texts[code], 0, args...) }

// Say writes the line of a code if it is due, with args.
func (t *Throttle) Say(log *Log, code string, args ...any) {
	if skipped, due := t.Due(time.Now(), Every); due {
		Write(log, code, texts[code], skipped, args...)
	}
}

// SayOf is Say for one argument, without an allocation if the line is not due.
func (t *Throttle) SayOf(log *Log, code, key, value string) {
	if skipped, due := t.Due(time.Now(), Every); due {
		Write(log, code, texts[code], skipped, key, value)
	}
}
