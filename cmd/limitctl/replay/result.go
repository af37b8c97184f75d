package replay

import (
	"time"

	"github.com/routelimit/limit/cmd/limitctl/replay/accesslog"
)

// A Result is what the policies would have done. Texts from the log (routes, keys,
// agents) are as clients sent them: escape them for where they are shown. Samples of
// bad lines are escaped.
type Result struct {
	Lines    int64 `json:"lines"`     // of all files, without empty ones
	BadLines int64 `json:"bad_lines"` // that no format reads
	Requests int64 `json:"requests"`  // that were decided
	Refused  int64 `json:"refused"`   // by Options.Policies

	NotHTTP    int64 `json:"not_http"`   // lines of clients that sent no HTTP request
	BadTimes   int64 `json:"bad_times"`  // lines before 1970 or after 2255, which the limiter cannot count
	Late       int64 `json:"late"`       // requests decided later than their time: see Options.Reorder
	Undecided  int64 `json:"undecided"`  // requests that a function of a policy made impossible to decide
	Redirected int64 `json:"redirected"` // requests answered with 301 or 308, which suggestions leave out
	Exempt     int64 `json:"exempt"`     // requests that Options.Exempt admitted
	Barred     int64 `json:"barred"`     // of the refused ones, those by Options.Bar

	// RefusedNoKey is, of the refused requests, those refused by a rule whose key they do
	// not have. All such requests share one quota.
	RefusedNoKey int64 `json:"refused_no_key"`

	NoRoute   int64 `json:"no_route"`  // requests that no policy decided
	Overflow  int64 `json:"overflow"`  // decisions on a quota that keys share: see Options.MaxKeys
	Untracked int64 `json:"untracked"` // requests of clients that are not told apart: see Memory

	From time.Time `json:"from,omitzero"` // of the first and last request; zero if there is none
	To   time.Time `json:"to,omitzero"`

	Clients        int64 `json:"clients"`         // addresses
	RefusedClients int64 `json:"refused_clients"` // of them, those with a refused request

	Files   []accesslog.File `json:"files,omitempty"`
	Formats map[string]int64 `json:"formats"` // lines of each format

	// Samples are the first bad lines of all files.
	Samples []accesslog.BadLine `json:"samples,omitempty"`

	Policies []PolicyResult `json:"policies"`
	Routes   []RouteResult  `json:"routes"` // the one with the most refusals first

	// Refusals are the clients with the most refused requests.
	Refusals []Client `json:"refusals"`

	Width   time.Duration `json:"width_ns"` // of a bucket
	Buckets []Bucket      `json:"buckets"`  // those with requests

	Stays Stays `json:"stays"`

	// Comparison is nil without Options.Compare.
	Comparison *Comparison `json:"comparison,omitempty"`

	Suggestions []Suggestion `json:"suggestions,omitempty"`

	// Notes are sentences about what a reader might not expect: a policy that matches no
	// route, a rule that cannot be replayed, clients without an address.
	Notes []string `json:"notes,omitempty"`
}

// A PolicyResult is what one policy did.
type PolicyResult struct {
	Name      string       `json:"name"`
	Routes    []string     `json:"routes,omitempty"`
	Requests  int64        `json:"requests"`         // that its rules decided
	Listed    int64        `json:"listed,omitempty"` // of exempt and barred clients, which its rules did not decide
	Refused   int64        `json:"refused"`
	GivenBack int64        `json:"given_back,omitempty"` // admitted requests that a later policy refused
	Delayed   int64        `json:"delayed"`              // admitted requests that a queue would have made wait
	Rules     []RuleResult `json:"rules"`
}

// A RuleResult is what one rule did.
type RuleResult struct {
	Name     string     `json:"name"`
	Rule     string     `json:"rule"`     // in the text grammar
	Refused  int64      `json:"refused"`  // requests that the rule refused, maybe with others
	Alone    int64      `json:"alone"`    // of them, those that no other rule of the policy refused
	Shadowed int64      `json:"shadowed"` // requests that a shadow would have refused
	Marked   int64      `json:"marked"`
	NoKey    int64      `json:"no_key"`         // requests without the rule's key; they share one quota
	LeftOut  int64      `json:"left_out"`       // of them, those before the first request with the key, not decided by the rule
	Keys     []KeyCount `json:"keys,omitempty"` // those refused most often
}

// A KeyCount is the refusals of one key of a rule.
type KeyCount struct {
	Key     string `json:"key"`
	Refused int64  `json:"refused"`         // at most Error too high, and never too low
	Error   int64  `json:"error,omitempty"` // 0 unless a rule has refused more than 2,000 keys
}

// A RouteResult is the requests of a route: a pattern of a policy, a path with {id} for
// what looks like an identifier, or "(other routes)".
type RouteResult struct {
	Route    string `json:"route"`
	Requests int64  `json:"requests"`
	Refused  int64  `json:"refused"`
	OnlyOld  int64  `json:"only_old,omitempty"` // see Comparison
	OnlyNew  int64  `json:"only_new,omitempty"`
}

// A Client is an address with refused requests.
type Client struct {
	Address  string        `json:"address"`
	Agent    string        `json:"agent,omitempty"` // of its last request
	Requests int64         `json:"requests"`
	Refused  int64         `json:"refused"`
	First    time.Time     `json:"first"`      // refusal
	Last     time.Time     `json:"last"`       // refusal
	Longest  time.Duration `json:"longest_ns"` // stay: see Stays
}

// Stays says how long clients would have stayed refused: from a refusal until the
// limiter would have admitted the client again, after its last refusal in between.
type Stays struct {
	Count int64         `json:"count"`
	P50   time.Duration `json:"p50_ns"`
	P90   time.Duration `json:"p90_ns"`
	P99   time.Duration `json:"p99_ns"`
	Max   time.Duration `json:"max_ns"`
	Never int64         `json:"never"` // refusals that no wait would have ended
}

// A Comparison is what Options.Compare, the new policies, would change.
type Comparison struct {
	BothAdmit  int64          `json:"both_admit"`
	BothRefuse int64          `json:"both_refuse"`
	OnlyOld    int64          `json:"only_old"` // refused by Options.Policies alone
	OnlyNew    int64          `json:"only_new"` // refused by Options.Compare alone
	Policies   []PolicyResult `json:"policies"` // the new ones

	// NewlyRefused are the clients with the most requests that only the new policies
	// refuse, and how many those are.
	NewlyRefused []KeyCount `json:"newly_refused,omitempty"`
}
