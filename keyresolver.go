package limit

import (
	"net/http"

	"github.com/routelimit/limit/internal/grammar"
	"github.com/routelimit/limit/rules"
)

// A KeyResolver turns a request into a key: requests with the same key share a
// quota. Use [ByIP], [ByUser], [Everyone] and the functions that begin with By. ByUser.Or(ByIP)
// resolves the first that the request has, and ByIP.And(ByUser) both: see
// [rules.KeyResolver]. The zero KeyResolver is invalid.
//
// All requests without a key (no such header, no user) share one quota: a missing key never
// means no limit. White space counts as no value. Keys are compared byte for byte.
type KeyResolver = rules.KeyResolver

var (
	// Everyone resolves every request to one key.
	Everyone = rules.NewKey(grammar.Global, "")

	// ByIP resolves the address of the client: an IPv4 address, or the /64 of an
	// IPv6 address. It is the peer of the connection unless [Options].Proxies names
	// proxies. Peers without an address (Unix sockets) share one quota.
	ByIP = rules.NewKey(grammar.IP, "")

	// ByUser resolves the user, by the User of the [Caller] of the adapter or of [Options].
	ByUser = rules.NewKey(grammar.User, "")
)

// ByHeader resolves the first value of a header, such as an API key. Clients can
// write any value, unless something before the limiter has checked it.
func ByHeader(name string) KeyResolver { return rules.NewKey(grammar.Header, name) }

// ByPathValue resolves a part of the path: "id" for "/users/:id" on Gin and Echo,
// and for "/users/{id}" on a ServeMux. The route must have it.
func ByPathValue(name string) KeyResolver { return rules.NewKey(grammar.Path, name) }

// By resolves what fn returns, such as a cookie or a part of the query; "" means that the
// request has no such key. The function must not read the body: see [Policy.Serve]. The
// name is one word, and appears in the names of rules. Each call of By makes another
// resolver, even of the same name and function: keep it in a variable for several sets.
func By(name string, fn func(*http.Request) string) KeyResolver { return rules.KeyBy(name, fn) }
