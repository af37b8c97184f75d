// Package limit limits the rate of requests by rules of which every one
// passes, or nothing is spent.
//
// Rules stand on a route like annotations, and are decided together:
//
//	limiter := limit.New(nil, nil)
//	mux.Handle("POST /update", limiter.Handler(limit.Rules(
//		limit.PerIP(2*time.Second, 5), limit.Global(time.Minute, 1000)), handler))
//
// Packages ginlimit and echolimit do the same on Gin and Echo, and package
// redisstore shares the quotas between processes. A request takes one way:
// its keys are resolved to charges, the store decides all of them at once, and
// the decision becomes headers and either the next handler or a 429.
//
// Code without HTTP takes by [Limiter.Take], which refuses, or [Limiter.Wait],
// which waits until the rules admit.
//
// A rule counts by one of several algorithms, the exact sliding window unless
// it says otherwise: see [Algorithm]. Requests in flight are limited by leases ([Concurrency]), and bytes a
// second by slowing bodies ([Limiter.Throttle]). The package authenticates
// nobody: a key is worth what stands behind it.
package limit
