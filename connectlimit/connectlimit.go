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
// [errdetails.QuotaFailure] with the rules that had no room. A call that could not
// be decided fails with [connect.CodeUnavailable] and a RetryInfo. The response
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
	call := limit.Call{Pattern: "/package.Service/Method", Everywhere: true}
	if l.User != nil {
		call.User = func() string { return "" }
	}
	policy, err := l.limiter.Bind(rules, call)
	if err != nil {
		panic(err)
	}
	return &interceptor{l, policy}
}

// An interceptor limits calls by a policy.
type interceptor struct {
	*Limiter
	policy *limit.Policy
}

// WrapUnary implements [connect.Interceptor].
func (i *interceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (response connect.AnyResponse, err error) {
		if request.Spec().IsClient {
			return next(ctx, request)
		}
		err = i.serve(ctx, request, request.Header(), unaryHeader(ctx), func(ctx context.Context) (err error) {
			response, err = next(ctx, request)
			return err
		})
		return response, err
	}
}

// WrapStreamingHandler implements [connect.Interceptor].
func (i *interceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		return i.serve(ctx, conn, conn.RequestHeader(), conn.ResponseHeader(), func(ctx context.Context) error {
			return next(ctx, conn)
		})
	}
}

// WrapStreamingClient implements [connect.Interceptor].
func (i *interceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// A call is a unary request or a stream.
type call interface {
	Spec() connect.Spec
	Peer() connect.Peer
}

func (i *interceptor) serve(ctx context.Context, from call, header, response http.Header, next func(context.Context) error) error {
	procedure := from.Spec().Procedure
	call := limit.Call{
		Pattern: procedure,
		Next: func(r *http.Request) (int, error) {
			err := next(r.Context())
			return adapter.RPCStatus(code(err)), err
		},
		Refuse: func(d limit.Decision) error {
			if i.Refuse != nil {
				if err := i.Refuse(ctx, d); err != nil {
					return err
				}
			}
			return answer(&limit.RefusedError{Decision: d}, response)
		},
		Fail: func(undecided error) error {
			if i.Fail != nil {
				if err := i.Fail(ctx, undecided); err != nil {
					return err
				}
			}
			return answer(undecided, response)
		},
	}
	if i.User != nil {
		call.User = func() string { return i.User(ctx) }
	}
	request := adapter.RPCRequest(ctx, procedure, from.Peer().Addr, header)
	return i.policy.Serve(adapter.HeaderWriter(response), request, call)
}
