package rpc_test

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
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/adapter/rpc/connectlimit"
	"github.com/routelimit/limit/adapter/rpc/grpclimit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/routetest"
	"github.com/routelimit/limit/rules"
)

// quiet returns a limiter that logs nothing.
func quiet(store core.Store, options limit.Options) *limit.Limiter {
	options.Log = slog.New(slog.DiscardHandler)
	return limit.New(store, &options)
}

func TestRefusal(t *testing.T) {
	each(t, func(t *testing.T, f framework) {
		c := f.start(t, nil, limit.Named("api", limit.PerIP(time.Minute, 2), limit.Global(time.Hour, 1000)))
		for i := range 2 {
			a := c.call()
			a.admitted()
			assert.Equal(t, []string{fmt.Sprintf(`"per-ip-1m";r=%d;t=60, "global-1h";r=%d;t=3600`, 1-i, 999-i)}, a.header["Ratelimit"])
			assert.Equal(t, []string{`"per-ip-1m";q=2;w=60, "global-1h";q=1000;w=3600`}, a.header["Ratelimit-Policy"])
			assert.Empty(t, a.header["Retry-After"])
		}
		for _, a := range []answer{c.call(), c.duplex(t.Context())} {
			assert.Equal(t, time.Minute, a.refused("per-ip-1m"))
			assert.Equal(t, []string{"60"}, a.header["Retry-After"])
			assert.Equal(t, []string{`"per-ip-1m";r=0;t=60, "global-1h";r=998;t=3600`}, a.header["Ratelimit"])
			assert.Contains(t, a.text, "limit: refused by per-ip-1m, retry after ")
		}
	})
}

// TestScreened checks that no rule is charged for the calls of exempt and barred
// clients, and what the latter get.
func TestScreened(t *testing.T) {
	each(t, func(t *testing.T, f framework) {
		bar := limit.Never
		c := f.start(t, quiet(failing{err: errors.New("a call of the store")}, limit.Options{
			Exempt: func(c limit.Client) bool { return c.Request.Header.Get("X-Exempt") != "" },
			Bar:    func(limit.Client) time.Duration { return bar },
		}), limit.Named("api", limit.PerIP(time.Minute, 2)))
		c.call("x-exempt", "yes").admitted()
		for _, test := range []struct {
			bar, retry time.Duration
			text       string
		}{
			{limit.Never, -1, "limit: the client is barred"},
			{time.Minute, time.Minute, "limit: the client is barred, retry after 1m0s"},
		} {
			bar = test.bar
			for _, a := range []answer{c.call(), c.duplex(t.Context())} {
				require.Equal(t, codes.PermissionDenied, a.code, a.err)
				assert.Contains(t, a.text, test.text)
				assert.Equal(t, test.retry, a.retry())
				assert.Len(t, a.details, map[bool]int{true: 1}[test.retry > 0])
			}
		}
	})
}

// TestErrorsOfHandlers checks that the header goes out with the error of a handler.
func TestErrorsOfHandlers(t *testing.T) {
	each(t, func(t *testing.T, f framework) {
		c := f.serve(t, service{rules: []limit.RuleSet{limit.Named("api", limit.PerIP(time.Minute, 2))},
			unary: func(context.Context) error { return f.newError(codes.NotFound, "no book") }})
		a := c.call()
		assert.Equal(t, codes.NotFound, a.code)
		assert.Equal(t, `"per-ip-1m";r=1;t=60`, a.header.Get("RateLimit"))
	})
}

// TestNever checks that a cost that no wait helps has no time to retry.
func TestNever(t *testing.T) {
	each(t, func(t *testing.T, f framework) {
		c := f.start(t, nil, limit.Named("api", limit.Rule{Name: "units", Key: limit.Everyone, Limit: 5, Window: time.Hour,
			Cost: rules.CostBy("units", func(*http.Request) int64 { return 6 })}))
		a := c.call()
		assert.EqualValues(t, -1, a.refused("units"))
		assert.Empty(t, a.header.Get("Retry-After"))
	})
}

// TestAllOrNothing checks that a call that one rule refuses is not charged to
// another, in either order of the rules. Its key is metadata.
func TestAllOrNothing(t *testing.T) {
	strict, loose := limit.Per(limit.ByHeader("X-Key"), time.Hour, 1), limit.Global(time.Hour, 3)
	each(t, func(t *testing.T, f framework) {
		for _, rules := range []limit.RuleSet{limit.Named("api", strict, loose), limit.Named("api", loose, strict)} {
			c := f.start(t, nil, rules)
			c.call("x-key", "a").admitted()
			for range 10 {
				c.call("x-key", "a").refused("per-header-x-key-1h")
			}
			c.call("x-key", "b").admitted()
			c.call("x-key", "c").admitted("refused calls were charged")
			c.call("x-key", "d").refused("global-1h")
		}
	})
}

// TestScopes calls three methods with each kind of rule set.
func TestScopes(t *testing.T) {
	calls := func(c client) []answer {
		return []answer{c.call(), c.method(c.t.Context(), unaryCall), c.duplex(c.t.Context())}
	}
	one := limit.Rule{Name: "one", Key: limit.Everyone, Limit: 1, Window: time.Hour}
	each(t, func(t *testing.T, f framework) {
		shared := calls(f.start(t, nil, limit.Named("shared", one)))
		shared[0].admitted()
		shared[1].refused("one")
		shared[2].refused("one")

		policies := make(map[string]int)
		c := f.start(t, quiet(nil, limit.Options{Observe: func(r *http.Request, d limit.Decision, _ error) {
			assert.Equal(t, r.URL.Path, d.Policy)
			policies[d.Policy]++
		}}), limit.EachRoute(one))
		for _, a := range calls(c) {
			a.admitted()
		}
		for _, a := range calls(c) {
			a.refused("one")
		}
		assert.Equal(t, map[string]int{emptyCall: 2, unaryCall: 2, duplex: 2}, policies)
	})
	many := `limit: rules 1/1h global cover many routes: write limit.Named("…", rules…) for one quota of all, ` +
		`or limit.EachRoute(rules…) for a quota of each`
	rules, gl := limit.Rules(limit.Global(time.Hour, 1)), grpclimit.New(limit.New(nil, nil))
	assert.PanicsWithError(t, many, func() { gl.Unary(rules) })
	assert.PanicsWithError(t, many, func() { gl.Stream(rules) })
	assert.PanicsWithError(t, many, func() { connectlimit.New(limit.New(nil, nil)).Limit(rules) })
}

// TestInvalidRules declares rules that could resolve no key, and outcomes that have no
// meaning for calls.
func TestInvalidRules(t *testing.T) {
	each(t, func(t *testing.T, f framework) {
		invalid := func(problem string, l *limit.Limiter, rules limit.RuleSet) {
			t.Helper()
			defer func() {
				err, _ := recover().(error)
				assert.ErrorContains(t, err, problem)
			}()
			f.bind(service{limiter: l, rules: []limit.RuleSet{rules}})
		}
		invalid("no user resolver", nil, limit.Named("api", limit.PerUser(time.Minute, 1)))
		invalid("has no values", nil, limit.Named("api", limit.Per(limit.ByPathValue("id"), time.Minute, 1)))
		invalid("no rules", nil, limit.Named("api"))
		for _, refusal := range []limit.Refusal{{Redirect: "/busy"}, {Degrade: true, Fallback: http.NotFoundHandler()}} {
			for _, l := range []*limit.Limiter{nil, limit.New(nil, &limit.Options{OnRefusal: refusal})} {
				invalid("a call cannot be redirected, nor sent to another handler", l, once(refusal))
			}
		}
	})
	assert.Panics(t, func() { grpclimit.New(nil) })
	assert.Panics(t, func() { connectlimit.New(nil) })
}

type userKey struct{}

// TestUser takes users from the context, where an interceptor put them.
func TestUser(t *testing.T) {
	each(t, func(t *testing.T, f framework) {
		c := f.serve(t, service{
			rules: []limit.RuleSet{limit.Named("users", limit.PerUser(time.Minute, 1))},
			around: func(ctx context.Context, authorization string, next func(context.Context) error) error {
				return next(context.WithValue(ctx, userKey{}, authorization))
			},
			user: func(ctx context.Context) string { return ctx.Value(userKey{}).(string) },
		})
		c.call("authorization", "alice").admitted()
		c.call("authorization", "bob").admitted()
		c.call("authorization", "alice").refused("per-user-1m")
		c.call().admitted()
		c.call().refused("per-user-1m")
	})
}

// TestClientAddress forges x-forwarded-for, to a server that trusts no proxy and to
// one behind a proxy.
func TestClientAddress(t *testing.T) {
	rules := limit.Named("api", limit.PerIP(time.Hour, 1))
	trusted := limit.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	each(t, func(t *testing.T, f framework) {
		c := f.start(t, quiet(nil, limit.Options{}), rules)
		c.call("x-forwarded-for", "203.0.113.1").admitted()
		c.call("x-forwarded-for", "203.0.113.2").refused("per-ip-1h")
		c.call("forwarded", "for=203.0.113.3").refused("per-ip-1h")

		c = f.start(t, quiet(nil, limit.Options{Proxies: trusted}), rules)
		c.call("x-forwarded-for", "203.0.113.1").admitted()
		c.call("x-forwarded-for", "203.0.113.2").admitted()
		c.call("x-forwarded-for", "198.51.100.7, 203.0.113.2").refused("per-ip-1h")
	})
}

// failing is a store that fails with an error.
type failing struct {
	core.Store
	err error
}

func (f failing) Take(context.Context, []core.Ask) error { return f.err }

// TestStoreFails checks the answer to calls that could not be decided, and to calls
// that a rule refuses without the store.
func TestStoreFails(t *testing.T) {
	rules := []limit.RuleSet{limit.Named("api", limit.Rule{Key: limit.ByIP, Limit: 5, Window: time.Minute, OnStoreError: limit.Refuse})}
	each(t, func(t *testing.T, f framework) {
		for _, err := range []error{errors.New("the disk is full"), fmt.Errorf("dial tcp: %w", core.ErrUnavailable)} {
			uncounted := func() error { t.Error("the handler runs uncounted"); return nil }
			var seen error
			c := f.serve(t, service{
				limiter: quiet(failing{nil, err}, limit.Options{}),
				rules:   rules,
				around: func(ctx context.Context, _ string, next func(context.Context) error) error {
					seen = next(ctx)
					return seen
				},
				unary:  func(context.Context) error { return uncounted() },
				stream: func(context.Context, func() (string, error)) error { return uncounted() },
			})
			for _, call := range []func() answer{func() answer { return c.call() }, func() answer { return c.duplex(t.Context()) }} {
				a := call()
				a.unavailable()
				if errors.Is(err, core.ErrUnavailable) {
					assert.ErrorAs(t, seen, new(*limit.RefusedError))
				} else {
					assert.ErrorIs(t, seen, limit.ErrUndecided, "interceptors outside learn the cause")
					assert.ErrorIs(t, seen, err)
					assert.Empty(t, a.header.Get("RateLimit"), "nothing is known of the quotas")
				}
			}
		}
	})
}

// TestHooks replaces the errors, and leaves the header as it is.
func TestHooks(t *testing.T) {
	rule := limit.PerIP(time.Minute, 1)
	rule.Cost = rules.CostBy("units", func(r *http.Request) int64 {
		if r.Header.Get("Broken") != "" {
			return -1
		}
		return 1
	})
	each(t, func(t *testing.T, f framework) {
		calls := 0
		c := f.serve(t, service{
			limiter: quiet(nil, limit.Options{
				Refuse: func(http.ResponseWriter, *http.Request, limit.Decision) { t.Error("an HTTP response") },
				Fail:   func(http.ResponseWriter, *http.Request, error) { t.Error("an HTTP response") },
			}),
			rules: []limit.RuleSet{limit.Named("api", rule)},
			refuse: func(_ context.Context, d limit.Decision) error {
				if calls++; calls == 1 {
					return f.newError(codes.PermissionDenied, routetest.Refused(d)[0])
				}
				return nil
			},
			fail: func(_ context.Context, err error) error {
				assert.ErrorIs(t, err, limit.ErrUndecided)
				return f.newError(codes.Aborted, "later")
			},
		})
		c.call().admitted()
		a := c.call()
		assert.Equal(t, codes.PermissionDenied, a.code)
		assert.Equal(t, "per-ip-1m", a.text)
		assert.Equal(t, "60", a.header.Get("Retry-After"))
		c.call().refused("per-ip-1m")
		a = c.call("broken", "yes")
		assert.Equal(t, codes.Aborted, a.code)
		assert.Equal(t, "later", a.text)
		assert.Equal(t, "1", a.header.Get("Retry-After"))
	})
}

// TestSettle settles what a call costs by the status of its code.
func TestSettle(t *testing.T) {
	rules := limit.Named("login", limit.Rule{Name: "failed", Key: limit.Everyone, Limit: 2, Window: time.Hour,
		Settle: rules.OnStatus(http.StatusUnauthorized)})
	each(t, func(t *testing.T, f framework) {
		var err error
		c := f.serve(t, service{rules: []limit.RuleSet{rules},
			unary:  func(context.Context) error { return err },
			stream: func(context.Context, func() (string, error)) error { return err }})
		for _, err = range []error{nil, f.newError(codes.PermissionDenied, ""), errors.New("no code"),
			context.Canceled, context.DeadlineExceeded, nil} {
			assert.NotEqual(t, codes.ResourceExhausted, c.call().code)
		}
		err = f.newError(codes.Unauthenticated, "wrong password")
		assert.Equal(t, codes.Unauthenticated, c.call().code)
		assert.Equal(t, codes.Unauthenticated, c.duplex(t.Context()).code)
		c.call().refused("failed")
	})
}

// TestUse settles calls by what their handlers say they use.
func TestUse(t *testing.T) {
	set := limit.Named("rows", limit.Rule{Name: "rows", Key: limit.Everyone, Limit: 10, Window: time.Hour, Settle: rules.AsUsed})
	use := func(ctx context.Context) error {
		return limit.DecisionFrom(ctx).Use(ctx, map[string]int64{"rows": 5})
	}
	each(t, func(t *testing.T, f framework) {
		c := f.serve(t, service{rules: []limit.RuleSet{set}, unary: use,
			stream: func(ctx context.Context, _ func() (string, error)) error { return use(ctx) }})
		assert.NotEqual(t, codes.ResourceExhausted, c.call().code)
		assert.NotEqual(t, codes.ResourceExhausted, c.duplex(t.Context()).code)
		c.call().refused("rows")
	})
}

// TestStacked chains rule sets: each is decided for itself, and the header has the
// members of all.
func TestStacked(t *testing.T) {
	each(t, func(t *testing.T, f framework) {
		c := f.start(t, nil, limit.Named("all", limit.Global(time.Hour, 9)), limit.EachRoute(limit.PerIP(time.Hour, 1)))
		a := c.call()
		a.admitted()
		assert.Equal(t, []string{`"global-1h";r=8;t=3600`, `"per-ip-1h";r=0;t=3600`}, a.header["Ratelimit"])
		c.call().refused("per-ip-1h")
	})
}

// TestChargedTwice checks that a call that is charged to one quota twice is logged.
func TestChargedTwice(t *testing.T) {
	each(t, func(t *testing.T, f framework) {
		var book bytes.Buffer
		all := limit.Named("all", limit.Global(time.Hour, 9))
		f.start(t, limit.New(nil, &limit.Options{Log: slog.New(slog.NewTextHandler(&book, nil))}), all, all).call().admitted()
		assert.Contains(t, book.String(), "code=LIMIT-102 policy=all rule=global-1h")
	})
}

// TestUnknownMethods checks that methods that clients of gRPC make up share one quota,
// and that its own client finds the header in the metadata.
func TestUnknownMethods(t *testing.T) {
	c := frameworks["gRPC"].start(t, nil, limit.EachRoute(limit.PerIP(time.Hour, 2)))
	conn := must.Get(grpc.NewClient(c.address, grpc.WithTransportCredentials(insecure.NewCredentials())))(t)
	defer conn.Close()
	var header metadata.MD
	for i, want := range []codes.Code{codes.Unimplemented, codes.Unimplemented, codes.ResourceExhausted} {
		err := conn.Invoke(t.Context(), fmt.Sprintf("/made.Up/Method%d", i), new(pb.Empty), new(pb.Empty), grpc.Header(&header))
		assert.Equal(t, want, status.Code(err))
	}
	assert.Equal(t, []string{"3600"}, header["retry-after"])
	for i := range 3 {
		_, err := pb.NewTestServiceClient(conn).EmptyCall(t.Context(), new(pb.Empty), grpc.Header(&header))
		assert.Equal(t, i == 2, status.Code(err) == codes.ResourceExhausted)
		assert.Equal(t, []string{fmt.Sprintf(`"per-ip-1h";r=%d;t=3600`, max(1-i, 0))}, header["ratelimit"])
	}
}

// TestClients checks that the interceptor of Connect does nothing on a client.
func TestClients(t *testing.T) {
	rl := connectlimit.New(limit.New(nil, nil))
	once := connect.WithInterceptors(rl.Limit(limit.Named("client", limit.Global(time.Hour, 1))))
	c := frameworks["Connect"].serve(t, service{}, once)
	for range 3 {
		c.call().admitted()
		c.duplex(t.Context()).admitted()
	}
}
