// Package limit limits the rate of requests by rules that are decided together:
// either every rule admits a request, or none is charged.
//
// Rules are declared on a route:
//
//	limiter := limit.New(nil, nil)
//	mux.Handle("POST /update", limiter.Limit(limit.Rules(
//		limit.PerIP(2*time.Second, 5), limit.Global(time.Minute, 1000)))(update))
//
// or for a whole application, whatever its router:
//
//	policy, err := limiter.Policy(limit.Named("all", limit.PerIP(time.Minute, 100)))
//	…
//	http.ListenAndServe(addr, policy.Middleware(app))
//
// Packages ginlimit and echolimit do the same on Gin and Echo, and package
// redisstore shares the quotas between processes. A [Policy] is a rule set bound to
// a limiter. It resolves the keys of a request to charges, the store decides all of
// them at once, and the [Decision] becomes headers and either the next handler or a
// 429. Outside HTTP, a policy decides by [Policy.Take], which refuses, or
// [Policy.Wait], which waits.
//
// A rule counts by an exact sliding window unless it names another [Algorithm].
// [Concurrency] limits requests in flight, and package throttle limits bandwidth.
//
// The package does not authenticate: a key is only as trustworthy as its source.
package limit
