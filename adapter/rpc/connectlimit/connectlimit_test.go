package connectlimit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/adapter/rpc/connectlimit"
	"github.com/routelimit/limit/core"
)

// quiet returns a limiter that logs nothing.
func quiet(store core.Store, options limit.Options) *limit.Limiter {
	options.Log = slog.New(slog.DiscardHandler)
	return limit.New(store, &options)
}

// start serves calls that rules admit.
func start(t *testing.T, l *limit.Limiter, rules limit.RuleSet) client {
	t.Helper()
	return serve(t, new(service), "Connect", connectlimit.New(l).Limit(rules))
}

func TestRefusal(t *testing.T) {
	for protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			rl := connectlimit.New(limit.New(nil, nil))
			c := serve(t, new(service), protocol, rl.Limit(limit.Named("api", limit.PerIP(time.Minute, 2), limit.Global(time.Hour, 1000))))
			for i := range 2 {
				a := c.call()
				a.admitted()
				assert.Equal(t, fmt.Sprintf(`"per-ip-1m";r=%d;t=60, "global-1h";r=%d;t=3600`, 1-i, 999-i), a.header.Get("RateLimit"))
				assert.Equal(t, `"per-ip-1m";q=2;w=60, "global-1h";q=1000;w=3600`, a.header.Get("RateLimit-Policy"))
				assert.Empty(t, a.header.Get("Retry-After"))
			}
			for _, a := range []answer{c.call(), c.duplex(t.Context())} {
				assert.Equal(t, time.Minute, a.refused("per-ip-1m"))
				assert.Equal(t, "60", a.header.Get("Retry-After"))
				assert.Equal(t, `"per-ip-1m";r=0;t=60, "global-1h";r=998;t=3600`, a.header.Get("RateLimit"))
				assert.ErrorContains(t, a.err, "limit: refused by per-ip-1m, retry after ")
			}
		})
	}
}

// TestScreened checks that no rule is charged for the calls of exempt and barred
// clients, and what the latter get.
func TestScreened(t *testing.T) {
	bar := limit.Never
	c := start(t, quiet(failing{err: errors.New("a call of the store")}, limit.Options{
		Exempt: func(c limit.Client) bool { return c.Request.Header.Get("X-Exempt") != "" },
		Bar:    func(limit.Client) time.Duration { return bar },
	}), limit.Named("api", limit.PerIP(time.Minute, 2)))
	c.call("x-exempt", "yes").admitted()
	for want, text := range map[time.Duration]string{0: "limit: the client is barred", time.Minute: "limit: the client is barred, retry after 1m0s"} {
		if bar = want; want == 0 {
			bar = limit.Never
		}
		for _, a := range []answer{c.call(), c.duplex(t.Context())} {
			require.Equal(t, connect.CodePermissionDenied, connect.CodeOf(a.err), a.err)
			assert.ErrorContains(t, a.err, text)
			var after time.Duration
			for _, detail := range details(a) {
				after = detail.(*errdetails.RetryInfo).RetryDelay.AsDuration()
			}
			assert.Equal(t, want, after)
		}
	}
}

// TestErrorsOfHandlers checks that the header goes out with the error of a handler.
func TestErrorsOfHandlers(t *testing.T) {
	for protocol := range protocols {
		rl := connectlimit.New(limit.New(nil, nil))
		c := serve(t, &service{unary: func(context.Context) error { return connect.NewError(connect.CodeNotFound, errors.New("no book")) }},
			protocol, rl.Limit(limit.Named("api", limit.PerIP(time.Minute, 2))))
		a := c.call()
		assert.Equal(t, connect.CodeNotFound, connect.CodeOf(a.err), protocol)
		assert.Equal(t, `"per-ip-1m";r=1;t=60`, a.header.Get("RateLimit"), protocol)
	}
}

// TestNever checks that a cost that no wait helps has no time to retry.
func TestNever(t *testing.T) {
	c := start(t, limit.New(nil, nil), limit.Named("api", limit.Rule{Name: "units", Key: limit.Everyone, Limit: 5, Window: time.Hour,
		Cost: limit.CostBy("units", func(*http.Request) int64 { return 6 })}))
	a := c.call()
	assert.EqualValues(t, -1, a.refused("units"))
	assert.Empty(t, a.header.Get("Retry-After"))
}

// TestAllOrNothing checks that a call that one rule refuses is not charged to
// another, in either order of the rules. Its key is a header.
func TestAllOrNothing(t *testing.T) {
	strict, loose := limit.Per(limit.ByHeader("X-Key"), time.Hour, 1), limit.Global(time.Hour, 3)
	for _, rules := range []limit.RuleSet{limit.Named("api", strict, loose), limit.Named("api", loose, strict)} {
		c := start(t, limit.New(nil, nil), rules)
		c.call("X-Key", "a").admitted()
		for range 10 {
			c.call("X-Key", "a").refused("per-header-x-key-1h")
		}
		c.call("X-Key", "b").admitted()
		c.call("X-Key", "c").admitted("refused calls were charged")
		c.call("X-Key", "d").refused("global-1h")
	}
}

// TestScopes calls three procedures with each kind of rule set.
func TestScopes(t *testing.T) {
	one := limit.Rule{Name: "one", Key: limit.Everyone, Limit: 1, Window: time.Hour}
	c := start(t, limit.New(nil, nil), limit.Named("shared", one))
	c.call().admitted()
	c.unary(c.two).refused("one")
	c.duplex(t.Context()).refused("one")

	policies := make(map[string]int)
	c = start(t, quiet(nil, limit.Options{Observe: func(r *http.Request, d limit.Decision, _ error) {
		assert.Equal(t, r.URL.Path, d.Policy())
		policies[d.Policy()]++
	}}), limit.EachRoute(one))
	c.call().admitted()
	c.unary(c.two).admitted()
	c.duplex(t.Context()).admitted()
	c.call().refused("one")
	c.unary(c.two).refused("one")
	c.duplex(t.Context()).refused("one")
	assert.Equal(t, map[string]int{oneCall: 2, twoCall: 2, duplexed: 2}, policies)

	assert.PanicsWithError(t, `limit: rules 1/1h global cover many routes: write limit.Named("…", rules…) for one quota of all, `+
		`or limit.EachRoute(rules…) for a quota of each`, func() {
		connectlimit.New(limit.New(nil, nil)).Limit(limit.Rules(limit.Global(time.Hour, 1)))
	})
}

// TestInvalidRules declares rules that could resolve no key.
func TestInvalidRules(t *testing.T) {
	rl := connectlimit.New(limit.New(nil, nil))
	for problem, rules := range map[string]limit.RuleSet{
		"no user resolver": limit.Named("api", limit.PerUser(time.Minute, 1)),
		"has no values":    limit.Named("api", limit.Per(limit.ByPathValue("id"), time.Minute, 1)),
		"no rules":         limit.Named("api"),
	} {
		func() {
			defer func() {
				err, _ := recover().(error)
				assert.ErrorContains(t, err, problem)
			}()
			rl.Limit(rules)
		}()
	}
	assert.Panics(t, func() { connectlimit.New(nil) })
}

type userKey struct{}

// TestUser takes users from the context, where an interceptor put them.
func TestUser(t *testing.T) {
	authenticate := connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
			return next(context.WithValue(ctx, userKey{}, request.Header().Get("Authorization")), request)
		}
	})
	rl := connectlimit.New(limit.New(nil, nil))
	rl.User = func(ctx context.Context) string {
		user, _ := ctx.Value(userKey{}).(string)
		return user
	}
	c := serve(t, new(service), "Connect", authenticate, rl.Limit(limit.Named("users", limit.PerUser(time.Minute, 1))))
	c.call("Authorization", "alice").admitted()
	c.call("Authorization", "bob").admitted()
	c.call("Authorization", "alice").refused("per-user-1m")
	c.call().admitted()
	c.call().refused("per-user-1m")
}

// TestClientAddress forges X-Forwarded-For, to a server that trusts no proxy and to
// one behind a proxy.
func TestClientAddress(t *testing.T) {
	rules := limit.Named("api", limit.PerIP(time.Hour, 1))
	c := start(t, quiet(nil, limit.Options{}), rules)
	c.call("X-Forwarded-For", "203.0.113.1").admitted()
	c.call("X-Forwarded-For", "203.0.113.2").refused("per-ip-1h")
	c.call("Forwarded", "for=203.0.113.3").refused("per-ip-1h")

	trusted := limit.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}}
	c = start(t, quiet(nil, limit.Options{Proxies: trusted}), rules)
	c.call("X-Forwarded-For", "203.0.113.1").admitted()
	c.call("X-Forwarded-For", "203.0.113.2").admitted()
	c.call("X-Forwarded-For", "198.51.100.7, 203.0.113.2").refused("per-ip-1h")
}

// failing is a store that fails with an error.
type failing struct {
	core.Store
	err error
}

func (f failing) Take(context.Context, []core.Ask) error {
	return f.err
}

// watch returns an interceptor that keeps the errors of unary calls.
func watch(seen *error) connect.Interceptor {
	return connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
			response, err := next(ctx, request)
			*seen = err
			return response, err
		}
	})
}

// TestStoreFails checks the answer to calls that could not be decided, and to calls
// that a rule refuses without the store.
func TestStoreFails(t *testing.T) {
	for protocol := range protocols {
		for _, err := range []error{errors.New("the disk is full"), fmt.Errorf("dial tcp: %w", core.ErrUnavailable)} {
			var seen error
			rl := connectlimit.New(quiet(failing{nil, err}, limit.Options{}))
			c := serve(t, &service{
				unary:  func(context.Context) error { t.Error("the handler runs uncounted"); return nil },
				stream: func(context.Context, *stream) error { t.Error("the handler runs uncounted"); return nil },
			}, protocol, watch(&seen), rl.Limit(limit.Named("api",
				limit.Rule{Key: limit.ByIP, Limit: 5, Window: time.Minute, OnStoreError: limit.Refuse})))
			c.call().unavailable()
			c.duplex(t.Context()).unavailable()
			if errors.Is(err, core.ErrUnavailable) {
				assert.ErrorAs(t, seen, new(*limit.RefusedError))
			} else {
				assert.ErrorIs(t, seen, limit.ErrUndecided, "interceptors outside learn the cause")
				assert.ErrorIs(t, seen, err)
				assert.Empty(t, c.call().header.Get("RateLimit"), "nothing is known of the quotas")
			}
		}
	}
}

// TestHooks replaces the errors, and leaves the header as it is.
func TestHooks(t *testing.T) {
	rl := connectlimit.New(quiet(nil, limit.Options{
		Refuse: func(http.ResponseWriter, *http.Request, limit.Decision) { t.Error("an HTTP response") },
		Fail:   func(http.ResponseWriter, *http.Request, error) { t.Error("an HTTP response") },
	}))
	calls := 0
	rl.Refuse = func(_ context.Context, d limit.Decision) error {
		if calls++; calls == 1 {
			return connect.NewError(connect.CodePermissionDenied, errors.New(d.Refusing()[0]))
		}
		return nil
	}
	rl.Fail = func(_ context.Context, err error) error {
		assert.ErrorIs(t, err, limit.ErrUndecided)
		return connect.NewError(connect.CodeAborted, errors.New("later"))
	}
	rule := limit.PerIP(time.Minute, 1)
	rule.Cost = limit.CostBy("units", func(r *http.Request) int64 {
		if r.Header.Get("Broken") != "" {
			return -1
		}
		return 1
	})
	c := serve(t, new(service), "Connect", rl.Limit(limit.Named("api", rule)))
	c.call().admitted()
	a := c.call()
	assert.EqualError(t, a.err, "permission_denied: per-ip-1m")
	assert.Equal(t, "60", a.header.Get("Retry-After"))
	c.call().refused("per-ip-1m")
	a = c.call("Broken", "yes")
	assert.EqualError(t, a.err, "aborted: later")
	assert.Equal(t, "1", a.header.Get("Retry-After"))
}

// TestSettle settles what a call costs by the status of its code.
func TestSettle(t *testing.T) {
	s := new(service)
	rl := connectlimit.New(limit.New(nil, nil))
	c := serve(t, s, "Connect", rl.Limit(limit.Named("login", limit.Rule{Name: "failed", Key: limit.Everyone, Limit: 2, Window: time.Hour,
		Settle: limit.OnStatus(http.StatusUnauthorized)})))
	for _, err := range []error{nil, connect.NewError(connect.CodePermissionDenied, nil), errors.New("no code"),
		context.Canceled, context.DeadlineExceeded, nil} {
		s.unary = func(context.Context) error { return err }
		assert.NotEqual(t, connect.CodeResourceExhausted, connect.CodeOf(c.call().err))
	}
	s.unary = func(context.Context) error {
		return connect.NewError(connect.CodeUnauthenticated, errors.New("wrong password"))
	}
	s.stream = func(ctx context.Context, _ *stream) error { return s.unary(ctx) }
	assert.Equal(t, connect.CodeUnauthenticated, connect.CodeOf(c.call().err))
	assert.Equal(t, connect.CodeUnauthenticated, connect.CodeOf(c.duplex(t.Context()).err))
	c.call().refused("failed")
}

// TestStacked chains rule sets: each is decided for itself, and the header has the
// members of all.
func TestStacked(t *testing.T) {
	rl := connectlimit.New(limit.New(nil, nil))
	c := serve(t, new(service), "Connect",
		rl.Limit(limit.Named("all", limit.Global(time.Hour, 9))), rl.Limit(limit.EachRoute(limit.PerIP(time.Hour, 1))))
	a := c.call()
	a.admitted()
	assert.Equal(t, []string{`"global-1h";r=8;t=3600`, `"per-ip-1h";r=0;t=3600`}, a.header.Values("RateLimit"))
	c.call().refused("per-ip-1h")
}

// TestChargedTwice checks that a call that is charged to one quota twice is logged.
func TestChargedTwice(t *testing.T) {
	var book bytes.Buffer
	rl := connectlimit.New(limit.New(nil, &limit.Options{Log: slog.New(slog.NewTextHandler(&book, nil))}))
	interceptor := rl.Limit(limit.Named("all", limit.Global(time.Hour, 9)))
	serve(t, new(service), "Connect", interceptor, interceptor).call().admitted()
	assert.Contains(t, book.String(), "code=LIMIT-102 policy=all rule=global-1h")
}

// TestClients checks that the interceptor does nothing on a client.
func TestClients(t *testing.T) {
	rl := connectlimit.New(limit.New(nil, nil))
	once := connect.WithInterceptors(rl.Limit(limit.Named("client", limit.Global(time.Hour, 1))))
	c := serveClient(t, new(service), []connect.ClientOption{once})
	for range 3 {
		c.call().admitted()
		c.duplex(t.Context()).admitted()
	}
}
