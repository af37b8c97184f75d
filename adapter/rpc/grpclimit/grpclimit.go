// Package grpclimit limits the methods of a gRPC server by the rules of package
// limit:
//
//	limiter := limit.New(nil, nil)
//	rl := grpclimit.New(limiter)
//	rules := limit.Named("api", limit.PerIP(time.Second, 20), limit.Global(time.Minute, 1000))
//	server := grpc.NewServer(grpc.UnaryInterceptor(rl.Unary(rules)), grpc.StreamInterceptor(rl.Stream(rules)))
//
// An interceptor covers every method of the server, so a rule set is made by
// limit.Named, for one quota of all, or by limit.EachRoute, for a quota of each
// method ("/acme.v1.Books/Get").
//
// Rules see a call as a POST request to its method, with the metadata as its
// header: limit.ByHeader resolves metadata, and limit.ByIP the address of the peer,
// or the client that limit.Options.Proxies finds in x-forwarded-for.
//
// A refused call fails with codes.ResourceExhausted, an [errdetails.RetryInfo] with
// the seconds of Retry-After, and an [errdetails.QuotaFailure] with the rules that
// had no room. A call of a barred client (limit.Options.Bar) fails with
// codes.PermissionDenied, and a RetryInfo unless it is barred for good. A call that
// could not be decided fails with codes.Unavailable and a RetryInfo. The header metadata has ratelimit, ratelimit-policy and retry-after.
//
// A stream is one call: it is decided when it begins, and holds its leases until
// the handler returns. Functions in limit.Rule.Settle get the HTTP status that
// google/rpc/code.proto gives for the code of the answer: see [adapter.RPCStatus].
package grpclimit

import (
	"context"
	"net/http"

	"google.golang.org/grpc"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/adapter"
)

// A Limiter makes interceptors from rules. Make it with [New], and set its fields
// before the first call of Unary or Stream.
type Limiter struct {
	// User returns the user of a call, for limit.ByUser: what the interceptor for
	// authentication, which must run first, has put into the context. "" means
	// that the call has no user. Nil means limit.Options.User.
	User func(context.Context) string

	// Refuse returns the error of a refused call, made with package status. Nil,
	// or a nil error, means codes.ResourceExhausted, or codes.PermissionDenied for
	// a barred client, with details: an error that wraps a [*limit.RefusedError]. limit.Options.Refuse is not called, since it
	// writes an HTTP response.
	Refuse func(context.Context, limit.Decision) error

	// Fail returns the error of a call that could not be decided. Nil, or a nil
	// error, means codes.Unavailable with details: an error that wraps
	// limit.ErrUndecided. Clients do not get its text. limit.Options.Fail is
	// not called.
	Fail func(context.Context, error) error

	limiter *limit.Limiter
}

// New returns a Limiter that decides by limiter.
func New(limiter *limit.Limiter) *Limiter {
	if limiter == nil {
		panic("grpclimit: the limiter is nil: write grpclimit.New(limit.New(nil, nil))")
	}
	return &Limiter{limiter: limiter}
}

// Unary returns an interceptor that lets through the unary calls that rules admit.
// It panics if the rules are invalid, or made by limit.Rules.
func (l *Limiter) Unary(rules limit.RuleSet) grpc.UnaryServerInterceptor {
	serve := l.bind(rules)
	return func(ctx context.Context, message any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (reply any, err error) {
		err = serve(&call{ctx: ctx, method: info.FullMethod, next: func(ctx context.Context) (err error) {
			reply, err = handler(ctx, message)
			return err
		}})
		return reply, err
	}
}

// Stream returns an interceptor that lets through the streams that rules admit. It
// panics if the rules are invalid, or made by limit.Rules.
func (l *Limiter) Stream(rules limit.RuleSet) grpc.StreamServerInterceptor {
	serve := l.bind(rules)
	return func(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		method := info.FullMethod
		if server == nil {
			method = "" // of grpc.UnknownServiceHandler, where clients choose the methods
		}
		return serve(&call{ctx: stream.Context(), method: method, next: func(ctx context.Context) error {
			return handler(server, &serverStream{stream, ctx})
		}})
	}
}

// A serverStream is a stream with another context.
type serverStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *serverStream) Context() context.Context { return s.ctx }

// A call is a unary call or a stream. The method is "" if the server does not have it.
type call struct {
	ctx    context.Context
	method string
	header adapter.HeaderWriter // of the answer
	next   func(context.Context) error
}

func (l *Limiter) bind(rules limit.RuleSet) (serve func(*call) error) {
	a := &limit.Adapter[*call]{
		RPC:   true,
		Route: func(c *call) (string, string) { return "", c.method },
		Next: func(c *call, r *http.Request) (int, error) {
			c.sendHeader()
			err := c.next(r.Context())
			return adapter.RPCStatus(uint32(code(err))), err
		},
		SetStatus: func(c *call, _ int) { c.sendHeader() },
		Answer:    answer,
	}
	if l.User != nil {
		a.User = func(c *call) string { return l.User(c.ctx) }
	}
	if l.Refuse != nil {
		a.Refuse = func(c *call, d limit.Decision) error { return l.Refuse(c.ctx, d) }
	}
	if l.Fail != nil {
		a.Fail = func(c *call, err error) error { return l.Fail(c.ctx, err) }
	}
	policy, err := a.Bind(l.limiter, "", rules)
	if err != nil {
		panic(err)
	}
	return func(c *call) error {
		c.header = make(adapter.HeaderWriter)
		return a.Serve(policy, c.header, request(c.ctx), c)
	}
}
