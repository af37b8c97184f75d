// Package replay decides the requests of access logs by rules, as the limiter would have
// decided them when they came:
//
//	log, err := accesslog.Open([]string{"access.log*"}, nil)
//	…
//	result, err := replay.Run(ctx, log, &replay.Options{Policies: []replay.Policy{{
//		Routes: []string{"POST /login"}, Rules: limit.MustParse("5/1m per ip")}}})
//	fmt.Println(result.Requests, result.Refused)
//
// The decisions are those of package limit on a memory store whose clock is the time of
// each line. The [Result] says how many requests would have been refused, of which
// clients, on which routes, by which rules, when and for how long; what another set of
// policies would change; and which limits only a small share of clients exceeds. With
// [Options].Again, it also says exactly what each of these limits would have refused.
//
// # What a log cannot tell
//
// Servers log a request when it ends, while a limiter decides when it begins. Requests in
// flight, settlements, plans and classes are in no log: each rule that needs them is named in
// [Result].Notes. docs/choosing-limits.md has more. Keys by header or cookie need a format
// with such fields: see [accesslog.Record].
//
// # Memory
//
// Memory does not grow with the log. [Options].MaxKeys and Reorder bound it. Results tell at
// most 262,144 addresses apart, but all are decided. Suggestions observe at most 131,072 pairs
// of a route and a client: in a log with more, half of the clients are left out, chosen by a
// hash, as often as needed. A replay of suggested rules has quotas for MaxKeys keys, and
// remembers those that it refuses. With the defaults, a log that fills all of them takes about
// 600 MB of live data, or 900 MB with a second set of policies. The garbage collector may use as
// much again; GOGC=25 in the environment makes it use less. A log of 50,000 clients takes about
// 100 MB.
package replay
