// Package connectlimit limits the procedures of a Connect server by the rules of
// package limit, for its three protocols (Connect, gRPC and gRPC-Web):
//
//	limiter := limit.New(nil, nil)
//	rl := connectlimit.New(limiter)
//	rules := limit.Named("api", limit.PerIP(time.Second, 20), limit.Global(time.Minute, 1000))
//	mux.Handle(booksv1connect.NewBooksHandler(books, connect.WithInterceptors(rl.Limit(rules))))
//
// An interceptor covers every procedure of its handlers, so a rule set is made by limit.Named, for
// one quota of all, or by limit.EachRoute, for a quota of each procedure ("/acme.v1.Books/Get").
//
// Rules see a call as a POST request to its procedure, with the header of the call. limit.ByIP
// resolves the address of the peer, or the client that limit.Options.Proxies finds in
// X-Forwarded-For.
//
// A refused call fails with [connect.CodeResourceExhausted], an [errdetails.RetryInfo] with the
// seconds of Retry-After, and an [errdetails.QuotaFailure] with the rules that had no room. A call
// of a barred client (limit.Options.Bar) fails with [connect.CodePermissionDenied], and a RetryInfo
// unless it is barred for good. A call that could not be decided fails with
// [connect.CodeUnavailable] and a RetryInfo. The response header has RateLimit, RateLimit-Policy
// and Retry-After, which clients also find in the Meta of the error.
//
// A stream is one call: it is decided when it begins, and holds its leases until the handler
// returns. Functions in limit.Rule.Settle get the HTTP status that google/rpc/code.proto gives for
// the code of the answer: see adapter.RPCStatus.
package connectlimit

import (
	"context"
	"errors"
	"net/http"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/adapter/rpc/internal/flow"
)

// A Limiter makes interceptors from rules. Make it with [New], and set its fields before the first
// call of Limit.
type Limiter struct {
	// Caller says who makes a call: what authentication, which must run first, has put
	// into the context. A function that is nil means that of limit.Options.Caller.
	Caller limit.Caller[context.Context]

	// Refuse returns the error of a refused call. Nil, or a nil error, means a [*connect.Error]
	// with details that wraps a [*limit.RefusedError]. limit.Options.Refuse is not called, since it
	// writes an HTTP response.
	Refuse func(context.Context, limit.Decision) error

	// Fail returns the error of a call that could not be decided. Nil, or a nil error, means a
	// [*connect.Error] with details that wraps limit.ErrUndecided. Clients do not get its text.
	// limit.Options.Fail is not called.
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

// Limit returns an interceptor for handlers that lets through the calls and streams that rules
// admit. On a client it does nothing. Limit panics if the rules are invalid, or made by
// limit.Rules.
func (l *Limiter) Limit(rules limit.RuleSet) connect.Interceptor {
	return interceptor(flow.Framework{Code: code, Error: newError, Caller: l.Caller, Refuse: l.Refuse, Fail: l.Fail}.Bind(l.limiter, rules))
}

// An interceptor serves calls, as a [connect.Interceptor].
type interceptor func(*flow.Call) error

func (serve interceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (response connect.AnyResponse, err error) {
		if request.Spec().IsClient {
			return next(ctx, request)
		}
		answer := make(http.Header) // called without a handler
		if info, ok := connect.CallInfoForHandlerContext(ctx); ok {
			answer = info.ResponseHeader() // goes out with a message and with an error
		}
		err = serve(&flow.Call{Context: ctx, Method: request.Spec().Procedure, Peer: request.Peer().Addr,
			Header: request.Header(), Answer: answer, Next: func(ctx context.Context) (err error) {
				response, err = next(ctx, request)
				return err
			}})
		return response, err
	}
}

func (serve interceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		return serve(&flow.Call{Context: ctx, Method: conn.Spec().Procedure, Peer: conn.Peer().Addr,
			Header: conn.RequestHeader(), Answer: conn.ResponseHeader(), Next: func(ctx context.Context) error {
				return next(ctx, conn)
			}})
	}
}

func (interceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// code returns the code that Connect answers with if a handler returns err.
func code(err error) uint32 {
	switch {
	case err == nil:
		return 0
	case errors.As(err, new(*connect.Error)):
		return uint32(connect.CodeOf(err))
	case errors.Is(err, context.Canceled):
		return uint32(connect.CodeCanceled)
	case errors.Is(err, context.DeadlineExceeded):
		return uint32(connect.CodeDeadlineExceeded)
	}
	return uint32(connect.CodeUnknown)
}

func newError(code uint32, details []proto.Message, err error) error {
	answer := connect.NewError(connect.Code(code), err)
	for _, message := range details {
		if detail, err := connect.NewErrorDetail(message); err == nil {
			answer.AddDetail(detail)
		}
	}
	return answer
}
