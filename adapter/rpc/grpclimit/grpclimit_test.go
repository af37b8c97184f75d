package grpclimit_test

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

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/adapter/rpc/grpclimit"
	"github.com/routelimit/limit/core"
)

// quiet returns a limiter that logs nothing.
func quiet(store core.Store, options limit.Options) *limit.Limiter {
	options.Log = slog.New(slog.DiscardHandler)
	return limit.New(store, &options)
}

// both returns the interceptors of rules.
func both(l *grpclimit.Limiter, rules limit.RuleSet) []grpc.ServerOption {
	return []grpc.ServerOption{grpc.UnaryInterceptor(l.Unary(rules)), grpc.StreamInterceptor(l.Stream(rules))}
}

// start serves calls that rules admit.
func start(t *testing.T, l *limit.Limiter, rules limit.RuleSet) client {
	t.Helper()
	return serve(t, new(service), both(grpclimit.New(l), rules)...)
}

func TestRefusal(t *testing.T) {
	c := start(t, limit.New(nil, nil), limit.Named("api", limit.PerIP(time.Minute, 2), limit.Global(time.Hour, 1000)))
	for i := range 2 {
		a := c.empty()
		a.admitted()
		assert.Equal(t, []string{fmt.Sprintf(`"per-ip-1m";r=%d;t=60, "global-1h";r=%d;t=3600`, 1-i, 999-i)}, a.header["ratelimit"])
		assert.Equal(t, []string{`"per-ip-1m";q=2;w=60, "global-1h";q=1000;w=3600`}, a.header["ratelimit-policy"])
		assert.Empty(t, a.header["retry-after"])
	}
	for _, a := range []answer{c.empty(), c.duplex(t.Context())} {
		assert.Equal(t, time.Minute, a.refused("per-ip-1m"))
		assert.Equal(t, []string{"60"}, a.header["retry-after"])
		assert.Equal(t, []string{`"per-ip-1m";r=0;t=60, "global-1h";r=998;t=3600`}, a.header["ratelimit"])
		assert.Contains(t, status.Convert(a.err).Message(), "limit: refused by per-ip-1m, retry after ")
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
	c.empty("x-exempt", "yes").admitted()
	for want, text := range map[time.Duration]string{0: "limit: the client is barred", time.Minute: "limit: the client is barred, retry after 1m0s"} {
		if bar = want; want == 0 {
			bar = limit.Never
		}
		for _, a := range []answer{c.empty(), c.duplex(t.Context())} {
			require.Equal(t, codes.PermissionDenied, status.Code(a.err), a.err)
			assert.ErrorContains(t, a.err, text)
			var after time.Duration
			for _, detail := range status.Convert(a.err).Details() {
				after = detail.(*errdetails.RetryInfo).RetryDelay.AsDuration()
			}
			assert.Equal(t, want, after)
		}
	}
}

// TestNever checks that a cost that no wait helps has no time to retry.
func TestNever(t *testing.T) {
	c := start(t, limit.New(nil, nil), limit.Named("api", limit.Rule{Name: "units", Key: limit.Everyone, Limit: 5, Window: time.Hour,
		Cost: limit.CostBy("units", func(*http.Request) int64 { return 6 })}))
	a := c.empty()
	assert.EqualValues(t, -1, a.refused("units"))
	assert.Empty(t, a.header["retry-after"])
}

// TestAllOrNothing checks that a call that one rule refuses is not charged to
// another, in either order of the rules. Its key is metadata.
func TestAllOrNothing(t *testing.T) {
	strict, loose := limit.Per(limit.ByHeader("X-Key"), time.Hour, 1), limit.Global(time.Hour, 3)
	for _, rules := range []limit.RuleSet{limit.Named("api", strict, loose), limit.Named("api", loose, strict)} {
		c := start(t, limit.New(nil, nil), rules)
		c.empty("x-key", "a").admitted()
		for range 10 {
			c.empty("x-key", "a").refused("per-header-x-key-1h")
		}
		c.empty("x-key", "b").admitted()
		c.empty("x-key", "c").admitted("refused calls were charged")
		c.empty("x-key", "d").refused("global-1h")
	}
}

// TestScopes calls three methods with each kind of rule set.
func TestScopes(t *testing.T) {
	calls := func(c client) []answer {
		first := c.empty()
		_, err := c.UnaryCall(t.Context(), new(testgrpc.SimpleRequest))
		return []answer{first, {t: t, err: err}, c.duplex(t.Context())}
	}
	one := limit.Rule{Name: "one", Key: limit.Everyone, Limit: 1, Window: time.Hour}

	shared := calls(start(t, limit.New(nil, nil), limit.Named("shared", one)))
	shared[0].admitted()
	shared[1].refused("one")
	shared[2].refused("one")

	policies := make(map[string]int)
	c := start(t, quiet(nil, limit.Options{Observe: func(r *http.Request, d limit.Decision, _ error) {
		assert.Equal(t, r.URL.Path, d.Policy())
		policies[d.Policy()]++
	}}), limit.EachRoute(one))
	for _, a := range calls(c) {
		a.admitted()
	}
	for _, a := range calls(c) {
		assert.Equal(t, codes.ResourceExhausted, status.Code(a.err))
	}
	assert.Equal(t, map[string]int{emptyCall: 2, unaryCall: 2, duplex: 2}, policies)

	rl := grpclimit.New(limit.New(nil, nil))
	want := `limit: rules 1/1h global cover many routes: write limit.Named("…", rules…) for one quota of all, ` +
		`or limit.EachRoute(rules…) for a quota of each`
	assert.PanicsWithError(t, want, func() { rl.Unary(limit.Rules(limit.Global(time.Hour, 1))) })
	assert.PanicsWithError(t, want, func() { rl.Stream(limit.Rules(limit.Global(time.Hour, 1))) })
}

// TestInvalidRules declares rules that could resolve no key.
func TestInvalidRules(t *testing.T) {
	rl := grpclimit.New(limit.New(nil, nil))
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
			rl.Unary(rules)
		}()
	}
	assert.Panics(t, func() { grpclimit.New(nil) })
}

type userKey struct{}

// TestUser takes users from the context, where an interceptor put them.
func TestUser(t *testing.T) {
	authenticate := func(ctx context.Context, message any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		md, _ := metadata.FromIncomingContext(ctx)
		if token := md.Get("authorization"); len(token) > 0 {
			ctx = context.WithValue(ctx, userKey{}, token[0])
		}
		return handler(ctx, message)
	}
	rl := grpclimit.New(limit.New(nil, nil))
	rl.User = func(ctx context.Context) string {
		user, _ := ctx.Value(userKey{}).(string)
		return user
	}
	rules := limit.Named("users", limit.PerUser(time.Minute, 1))
	c := serve(t, new(service), grpc.ChainUnaryInterceptor(authenticate, rl.Unary(rules)))
	c.empty("authorization", "alice").admitted()
	c.empty("authorization", "bob").admitted()
	c.empty("authorization", "alice").refused("per-user-1m")
	c.empty().admitted()
	c.empty().refused("per-user-1m")
}

// TestClientAddress forges x-forwarded-for, to a server that trusts no proxy and to
// one behind a proxy.
func TestClientAddress(t *testing.T) {
	rules := limit.Named("api", limit.PerIP(time.Hour, 1))
	c := start(t, quiet(nil, limit.Options{}), rules)
	c.empty("x-forwarded-for", "203.0.113.1").admitted()
	c.empty("x-forwarded-for", "203.0.113.2").refused("per-ip-1h")
	c.empty("forwarded", "for=203.0.113.3").refused("per-ip-1h")

	trusted := limit.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	c = start(t, quiet(nil, limit.Options{Proxies: trusted}), rules)
	c.empty("x-forwarded-for", "203.0.113.1").admitted()
	c.empty("x-forwarded-for", "203.0.113.2").admitted()
	c.empty("x-forwarded-for", "198.51.100.7, 203.0.113.2").refused("per-ip-1h")
}

// failing is a store that fails with an error.
type failing struct {
	core.Store
	err error
}

func (f failing) Take(context.Context, []core.Ask) error {
	return f.err
}

// TestStoreFails checks the answer to calls that could not be decided, and to calls
// that a rule refuses without the store.
func TestStoreFails(t *testing.T) {
	for _, err := range []error{errors.New("the disk is full"), fmt.Errorf("dial tcp: %w", core.ErrUnavailable)} {
		var seen error
		watch := func(ctx context.Context, message any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (reply any, err error) {
			reply, seen = handler(ctx, message)
			return reply, seen
		}
		rl := grpclimit.New(quiet(failing{nil, err}, limit.Options{}))
		rules := limit.Named("api", limit.Rule{Key: limit.ByIP, Limit: 5, Window: time.Minute, OnStoreError: limit.Refuse})
		c := serve(t, &service{
			unary: func(context.Context) error { t.Error("the handler runs uncounted"); return nil },
			stream: func(testgrpc.TestService_FullDuplexCallServer) error {
				t.Error("the handler runs uncounted")
				return nil
			},
		}, grpc.ChainUnaryInterceptor(watch, rl.Unary(rules)), grpc.StreamInterceptor(rl.Stream(rules)))
		c.empty().unavailable()
		c.duplex(t.Context()).unavailable()
		if errors.Is(err, core.ErrUnavailable) {
			assert.ErrorAs(t, seen, new(*limit.RefusedError))
		} else {
			assert.ErrorIs(t, seen, limit.ErrUndecided, "interceptors outside learn the cause")
			assert.ErrorIs(t, seen, err)
			assert.Empty(t, c.empty().header["ratelimit"], "nothing is known of the quotas")
		}
	}
}

// TestHooks replaces the errors, and leaves the header as it is.
func TestHooks(t *testing.T) {
	rl := grpclimit.New(quiet(nil, limit.Options{
		Refuse: func(http.ResponseWriter, *http.Request, limit.Decision) { t.Error("an HTTP response") },
		Fail:   func(http.ResponseWriter, *http.Request, error) { t.Error("an HTTP response") },
	}))
	calls := 0
	rl.Refuse = func(_ context.Context, d limit.Decision) error {
		if calls++; calls == 1 {
			return status.Error(codes.PermissionDenied, d.Refusing()[0])
		}
		return nil
	}
	rl.Fail = func(_ context.Context, err error) error {
		assert.ErrorIs(t, err, limit.ErrUndecided)
		return status.Error(codes.Aborted, "later")
	}
	rule := limit.PerIP(time.Minute, 1)
	rule.Cost = limit.CostBy("units", func(r *http.Request) int64 {
		if r.Header.Get("Broken") != "" {
			return -1
		}
		return 1
	})
	c := serve(t, new(service), both(rl, limit.Named("api", rule))...)
	c.empty().admitted()
	a := c.empty()
	assert.Equal(t, codes.PermissionDenied, status.Code(a.err))
	assert.Equal(t, "per-ip-1m", status.Convert(a.err).Message())
	assert.Equal(t, []string{"60"}, a.header["retry-after"])
	c.empty().refused("per-ip-1m")
	a = c.empty("broken", "yes")
	assert.Equal(t, codes.Aborted, status.Code(a.err))
	assert.Equal(t, []string{"1"}, a.header["retry-after"])
}

// TestSettle settles what a call costs by the status of its code.
func TestSettle(t *testing.T) {
	s := new(service)
	rl := grpclimit.New(limit.New(nil, nil))
	c := serve(t, s, both(rl, limit.Named("login", limit.Rule{Name: "failed", Key: limit.Everyone, Limit: 2, Window: time.Hour,
		Settle: limit.OnStatus(http.StatusUnauthorized)}))...)
	for _, err := range []error{nil, status.Error(codes.PermissionDenied, ""), errors.New("no status"), context.Canceled, nil} {
		s.unary = func(context.Context) error { return err }
		assert.NotEqual(t, codes.ResourceExhausted, status.Code(c.empty().err))
	}
	s.unary = func(context.Context) error { return status.Error(codes.Unauthenticated, "wrong password") }
	s.stream = func(testgrpc.TestService_FullDuplexCallServer) error { return s.unary(t.Context()) }
	assert.Equal(t, codes.Unauthenticated, status.Code(c.empty().err))
	assert.Equal(t, codes.Unauthenticated, status.Code(c.duplex(t.Context()).err))
	c.empty().refused("failed")
}

// TestStacked chains rule sets: each is decided for itself, and the header has the
// members of all.
func TestStacked(t *testing.T) {
	rl := grpclimit.New(limit.New(nil, nil))
	c := serve(t, new(service), grpc.ChainUnaryInterceptor(
		rl.Unary(limit.Named("all", limit.Global(time.Hour, 9))), rl.Unary(limit.EachRoute(limit.PerIP(time.Hour, 1)))))
	a := c.empty()
	a.admitted()
	assert.Equal(t, []string{`"global-1h";r=8;t=3600`, `"per-ip-1h";r=0;t=3600`}, a.header["ratelimit"])
	c.empty().refused("per-ip-1h")
}

// TestChargedTwice checks that a call that is charged to one quota twice is logged.
func TestChargedTwice(t *testing.T) {
	var book bytes.Buffer
	rl := grpclimit.New(limit.New(nil, &limit.Options{Log: slog.New(slog.NewTextHandler(&book, nil))}))
	interceptor := rl.Unary(limit.Named("all", limit.Global(time.Hour, 9)))
	serve(t, new(service), grpc.ChainUnaryInterceptor(interceptor, interceptor)).empty().admitted()
	assert.Contains(t, book.String(), "code=LIMIT-102 policy=all rule=global-1h")
}

// TestUnknownMethods checks that methods that clients make up share one quota.
func TestUnknownMethods(t *testing.T) {
	rl := grpclimit.New(limit.New(nil, nil))
	options := append(both(rl, limit.EachRoute(limit.PerIP(time.Hour, 2))),
		grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error { return status.Error(codes.Unimplemented, "unknown") }))
	c := serve(t, new(service), options...)
	for i, want := range []codes.Code{codes.Unimplemented, codes.Unimplemented, codes.ResourceExhausted} {
		err := c.conn.Invoke(t.Context(), fmt.Sprintf("/made.Up/Method%d", i), new(testgrpc.Empty), new(testgrpc.Empty))
		assert.Equal(t, want, status.Code(err))
	}
	c.empty().admitted()
}
