// Package connectlimit limits the procedures of a Connect server by the rules of
// package limit, for its three protocols (Connect, gRPC and gRPC-Web):
//
//	limiter := limit.New(nil, nil)
//	rl := connectlimit.New(limiter)
//	rules := limit.Named("api", limit.PerIP(time.Second, 20), limit.Global(time.Minute, 1000))
//	mux.Handle(booksv1connect.NewBooksHandler(books, connect.WithInterceptors(rl.Limit(rules))))
//
// An interceptor covers every procedure of its handlers, so a rule set is made by
// limit.Named, for one quota of all, or by limit.EachRoute, for a quota of each
// procedure ("/acme.v1.Books/Get").
//
// Rules see a call as a POST request to its procedure, with the header of the call.
// limit.ByIP resolves the address of the peer, or the client that
// limit.Options.Proxies finds in X-Forwarded-For.
//
// A refused call fails with [connect.CodeResourceExhausted], an
// [errdetails.RetryInfo] with the seconds of Retry-After, and an
// [errdetails.QuotaFailure] with the rules that had no room. A call of a barred
// client (limit.Options.Bar) fails with [connect.CodePermissionDenied], and a
// RetryInfo unless it is barred for good. A call that could not be decided fails
// with [connect.CodeUnavailable] and a RetryInfo. The response
// header has RateLimit, RateLimit-Policy and Retry-After, which clients also find in
// the Meta of the error.
//
// A stream is one call: it is decided when it begins, and holds its leases until
// the handler returns. Functions in limit.Rule.Settle get the HTTP status that
// google/rpc/code.proto gives for the code of the answer: see [adapter.RPCStatus].
package connectlimit

import (
	"context"
	"net/http"

	"connectrpc.com/connect"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/adapter"
)

// A Limiter makes interceptors from rules. Make it with [New], and set its fields
// before the first call of Limit.
type Limiter struct {
	// User returns the user of a call, for limit.ByUser: what authentication,
	// which must run first, has put into the context. "" means that the call has
	// no user. Nil means limit.Options.User.
	User func(context.Context) string

	// Refuse returns the error of a refused call. Nil, or a nil error, means a
	// [*connect.Error] with details that wraps a [*limit.RefusedError].
	// limit.Options.Refuse is not called, since it writes an HTTP response.
	Refuse func(context.Context, limit.Decision) error

	// Fail returns the error of a call that could not be decided. Nil, or a nil
	// error, means a [*connect.Error] with details that wraps limit.ErrUndecided.
	// Clients do not get its text. limit.Options.Fail is not called.
	Fail func(context.Context, error) error

	limiter *limit.Limiter
}

// New returns a Limiter that decides by limiter.
func New(limiter *limit.Limiter) *Limiter {
	if limiter == nil {
		panic("connectlimit: the limiter is nil: write connectlimit.New(limit.New(nil, nil))")
	}
	return &Limiter{limiter: limiter}
}

// Limit returns an interceptor for handlers that lets through the calls and streams
// that rules admit. On a client it does nothing. Limit panics if the rules are
// invalid, or made by limit.Rules.
func (l *Limiter) Limit(rules limit.RuleSet) connect.Interceptor {
	a := &limit.Adapter[call]{
		RPC:   true,
		Route: func(c call) (string, string) { return "", c.from.Spec().Procedure },
		Next: func(c call, r *http.Request) (int, error) {
			err := c.next(r.Context())
			return adapter.RPCStatus(code(err)), err
		},
		Answer: answer,
	}
	if l.User != nil {
		a.User = func(c call) string { return l.User(c.ctx) }
	}
	if l.Refuse != nil {
		a.Refuse = func(c call, d limit.Decision) error { return l.Refuse(c.ctx, d) }
	}
	if l.Fail != nil {
		a.Fail = func(c call, err error) error { return l.Fail(c.ctx, err) }
	}
	policy, err := a.Bind(l.limiter, "", rules)
	if err != nil {
		panic(err)
	}
	return interceptor(func(c call, header http.Header) error {
		r := adapter.RPCRequest(c.ctx, c.from.Spec().Procedure, c.from.Peer().Addr, header)
		return a.Serve(policy, adapter.HeaderWriter(c.header), r, c)
	})
}

// A call is a unary request or a stream.
type call struct {
	ctx  context.Context
	from interface {
		Spec() connect.Spec
		Peer() connect.Peer
	}
	header http.Header // of the response
	next   func(context.Context) error
}

// An interceptor serves calls with the headers of their requests.
type interceptor func(c call, header http.Header) error

// WrapUnary implements [connect.Interceptor].
func (serve interceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (response connect.AnyResponse, err error) {
		if request.Spec().IsClient {
			return next(ctx, request)
		}
		err = serve(call{ctx, request, unaryHeader(ctx), func(ctx context.Context) (err error) {
			response, err = next(ctx, request)
			return err
		}}, request.Header())
		return response, err
	}
}

// WrapStreamingHandler implements [connect.Interceptor].
func (serve interceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		return serve(call{ctx, conn, conn.ResponseHeader(), func(ctx context.Context) error {
			return next(ctx, conn)
		}}, conn.RequestHeader())
	}
}

// WrapStreamingClient implements [connect.Interceptor].
func (interceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}
