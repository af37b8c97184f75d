// Package grpclimit limits the methods of a gRPC server by the rules of package limit:
//
//	limiter := limit.New(nil, nil)
//	rl := grpclimit.New(limiter)
//	rules := limit.Named("api", limit.PerIP(time.Second, 20), limit.Global(time.Minute, 1000))
//	server := grpc.NewServer(grpc.UnaryInterceptor(rl.Unary(rules)), grpc.StreamInterceptor(rl.Stream(rules)))
//
// An interceptor covers every method of the server, so a rule set is made by limit.Named, for one
// quota of all, or by limit.EachRoute, for a quota of each method ("/acme.v1.Books/Get").
//
// Rules see a call as a POST request to its method, with the metadata as its header: limit.ByHeader
// resolves metadata, and limit.ByIP the address of the peer, or the client that
// limit.Options.Proxies finds in x-forwarded-for.
//
// A refused call fails with codes.ResourceExhausted, an [errdetails.RetryInfo] with the seconds of
// Retry-After, and an [errdetails.QuotaFailure] with the rules that had no room. A call of a barred
// client (limit.Options.Bar) fails with codes.PermissionDenied, and a RetryInfo unless it is barred
// for good. A call that could not be decided fails with codes.Unavailable and a RetryInfo. The
// header metadata has ratelimit, ratelimit-policy and retry-after.
//
// A stream is one call: it is decided when it begins, and holds its leases until the handler
// returns. Functions in limit.Rule.Settle get the HTTP status that google/rpc/code.proto gives for
// the code of the answer: see adapter.RPCStatus.
package grpclimit

import (
	"context"
	"net/http"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/adapter/rpc/internal/flow"
)

// A Limiter makes interceptors from rules. Make it with [New], and set its fields before the first
// one.
type Limiter struct {
	// Caller says who makes a call: what authentication, which must run first, has put
	// into the context. A function that is nil means that of limit.Options.Caller.
	Caller limit.Caller[context.Context]

	// Refuse returns the error of a refused call, made with package status. Nil, or a nil error,
	// means codes.ResourceExhausted, or codes.PermissionDenied for a barred client, with details:
	// an error that wraps a [*limit.RefusedError]. limit.Options.Refuse is not called, since it
	// writes an HTTP response.
	Refuse func(context.Context, limit.Decision) error

	// Fail returns the error of a call that could not be decided. Nil, or a nil error, means
	// codes.Unavailable with details: an error that wraps limit.ErrUndecided. Clients do not get
	// its text. limit.Options.Fail is not called.
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
		err = serve(call(ctx, info.FullMethod, func(ctx context.Context) (err error) {
			reply, err = handler(ctx, message)
			return err
		}))
		return reply, err
	}
}

// Stream returns an interceptor that lets through the streams that rules admit. It
// panics if the rules are invalid, or made by limit.Rules.
func (l *Limiter) Stream(rules limit.RuleSet) grpc.StreamServerInterceptor {
	serve := l.bind(rules)
	return func(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		c := call(stream.Context(), info.FullMethod, func(ctx context.Context) error {
			return handler(server, &serverStream{stream, ctx})
		})
		c.Unknown = server == nil // of grpc.UnknownServiceHandler, where clients choose the methods
		return serve(c)
	}
}

type serverStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *serverStream) Context() context.Context { return s.ctx }

func (l *Limiter) bind(rules limit.RuleSet) (serve func(*flow.Call) error) {
	return flow.Framework{Code: code, Error: newError, Send: send, Caller: l.Caller, Refuse: l.Refuse, Fail: l.Fail}.Bind(l.limiter, rules)
}

func call(ctx context.Context, method string, next func(context.Context) error) *flow.Call {
	md, _ := metadata.FromIncomingContext(ctx)
	c := &flow.Call{Context: ctx, Method: method, Header: make(http.Header, len(md)), Answer: make(http.Header), Next: next}
	for name, values := range md {
		c.Header[http.CanonicalHeaderKey(name)] = values
	}
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		c.Peer = p.Addr.String()
	}
	return c
}

// send sends the header with the first message, or with the error.
func send(c *flow.Call) {
	md := make(metadata.MD, len(c.Answer))
	for name, values := range c.Answer {
		md.Append(name, values...)
	}
	_ = grpc.SetHeader(c.Context, md) // fails if the call has ended
}

// code returns the code that gRPC answers with if a handler returns err.
func code(err error) uint32 {
	if s, ok := status.FromError(err); ok {
		return uint32(s.Code())
	}
	return uint32(status.FromContextError(err).Code())
}

// A statusError is an error that clients see as a status, without its cause.
type statusError struct {
	status *status.Status
	cause  error
}

func (e *statusError) Error() string              { return e.status.Err().Error() }
func (e *statusError) Unwrap() error              { return e.cause }
func (e *statusError) GRPCStatus() *status.Status { return e.status } // for status.FromError

func newError(code uint32, messages []proto.Message, err error) error {
	s := status.New(codes.Code(code), err.Error())
	details := make([]protoadapt.MessageV1, len(messages))
	for i, m := range messages {
		details[i] = protoadapt.MessageV1Of(m)
	}
	if detailed, err := s.WithDetails(details...); err == nil {
		s = detailed
	}
	return &statusError{s, err}
}
