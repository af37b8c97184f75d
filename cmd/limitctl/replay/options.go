package replay

import (
	"cmp"
	"net/netip"
	"time"

	"github.com/routelimit/limit"
)

// A Policy is rules and where they stand.
type Policy struct {
	// Name is what results call the policy. "" means its first route, or its rules.
	Name string

	// Routes are patterns of [http.ServeMux], of which the most specific one matches, as
	// on a server. A policy without routes decides every request, before those with
	// routes: as an outer set, it gives back what it took if a later one refuses.
	Routes []string

	// Rules decide. Sets made by [limit.Named] share one quota over all routes.
	Rules limit.RuleSet
}

// Options configures a replay. Nil and the zero Options only count requests and make
// suggestions.
type Options struct {
	// Policies decide each request.
	Policies []Policy

	// Compare decides each request too, with quotas of its own: see [Result].Comparison.
	// Of its fields, Policies, Exempt and Bar count. Nil compares nothing.
	Compare *Options

	// Exempt and Bar are those of [limit.Options]. The request has its method, URL, host,
	// address, user agent, and the headers and cookies of the log's format, and the client
	// has the user that the log names.
	Exempt func(limit.Client) bool
	Bar    func(limit.Client) time.Duration

	// IPv6Prefix is that of [limit.Proxies]; 0 means 64.
	IPv6Prefix int

	// Trusted is that of [limit.Proxies], for logs with X-Forwarded-For.
	Trusted []netip.Prefix

	// Reorder is how many lines late a line may be to be sorted by its time; 0 means
	// 100,000, and -1 none. A line later than that is decided at the time of the latest line
	// before it, and counted in [Result].Late. Twice as many lines are held back, each of
	// which takes 120 bytes.
	Reorder int

	// MaxKeys is [memstore.Options].MaxKeys, for each set of policies; 0 means
	// 1,048,576. A key takes about 220 bytes.
	MaxKeys int

	// Top is how many keys, clients and suggestions results list; 0 means 20.
	Top int

	// Share is the share of clients that each suggested limit may refuse; 0 means none.
	Share float64

	// Again opens the log a second time, to replay each suggested rule. [Run] closes it. Nil means
	// that suggestions do not say what they would have refused.
	Again func() (Source, error)

	// NoSuggestions saves their time and memory.
	NoSuggestions bool

	// Progress is called now and then with the number of records read. Nil means that it
	// is not.
	Progress func(records int64)

	// Tests lower these bounds: see Memory.
	maxClients int // addresses; each takes about 400 bytes
	maxSeries  int // pairs of a route, or of all, and a client; each takes about 450 bytes
}

func (o *Options) withDefaults() Options {
	given := *cmp.Or(o, new(Options))
	given.Reorder = cmp.Or(given.Reorder, 100_000)
	given.MaxKeys = cmp.Or(given.MaxKeys, 1<<20)
	given.maxClients = cmp.Or(given.maxClients, 1<<18)
	given.maxSeries = cmp.Or(given.maxSeries, 1<<17)
	given.Top = cmp.Or(given.Top, 20)
	return given
}
