package notice

import "time"

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
func (t *Throttle) Say(log *Log, code string, args ...any) { t.Warn(log, code, texts[code], args...) }

// SayOf is Say for one argument, without an allocation if the line is not due.
func (t *Throttle) SayOf(log *Log, code, key, value string) {
	if skipped, due := t.Due(time.Now(), Every); due {
		Write(log, code, texts[code], skipped, key, value)
	}
}
