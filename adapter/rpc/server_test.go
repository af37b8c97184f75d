// Package rpc_test has the tests of grpclimit and connectlimit: each runs on a server
// of gRPC, and on one of Connect by each protocol that it speaks.
package rpc_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/adapter/rpc/connectlimit"
	"github.com/routelimit/limit/adapter/rpc/grpclimit"
	"github.com/routelimit/limit/internal/must"
)

const (
	emptyCall = "/grpc.testing.TestService/EmptyCall"
	unaryCall = "/grpc.testing.TestService/UnaryCall"
	duplex    = "/grpc.testing.TestService/FullDuplexCall"
)

// A service has the rules and the handlers of a server; nil functions return at once.
type service struct {
	limiter *limit.Limiter // nil for one in memory
	rules   []limit.RuleSet
	user    func(context.Context) string
	refuse  func(context.Context, limit.Decision) error
	fail    func(context.Context, error) error

	// around stands outside the rules. Authorization is a header of the call.
	around func(ctx context.Context, authorization string, next func(context.Context) error) error

	unary  func(context.Context) error
	stream func(ctx context.Context, receive func() (string, error)) error
}

// A framework is a server and the protocol that the client speaks to it.
type framework struct {
	limit    func(service) (serve func(*testing.T) string) // the address
	newError func(code codes.Code, text string) error
	protocol []connect.ClientOption
}

var frameworks = map[string]framework{
	"gRPC":              {limitGRPC, status.Error, []connect.ClientOption{connect.WithGRPC()}},
	"Connect":           {limitConnect, connectError, nil},
	"Connect, gRPC":     {limitConnect, connectError, []connect.ClientOption{connect.WithGRPC()}},
	"Connect, gRPC-Web": {limitConnect, connectError, []connect.ClientOption{connect.WithGRPCWeb()}},
}

func connectError(code codes.Code, text string) error {
	return connect.NewError(connect.Code(code), errors.New(text))
}

// each runs a test on every framework.
func each(t *testing.T, test func(*testing.T, framework)) {
	for name, f := range frameworks {
		t.Run(name, func(t *testing.T) { test(t, f) })
	}
}

// serveGRPC is a server of gRPC.
type serveGRPC struct {
	pb.UnimplementedTestServiceServer
	service
}

func limitGRPC(s service) func(*testing.T) string {
	rl := grpclimit.New(s.limiter)
	rl.Caller.User, rl.Refuse, rl.Fail = s.user, s.refuse, s.fail
	around := func(ctx context.Context, next func(context.Context) error) error {
		if s.around == nil {
			return next(ctx)
		}
		md, _ := metadata.FromIncomingContext(ctx)
		return s.around(ctx, first(md.Get("authorization")), next)
	}
	unary := []grpc.UnaryServerInterceptor{func(ctx context.Context, message any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (reply any, err error) {
		err = around(ctx, func(ctx context.Context) (err error) { reply, err = next(ctx, message); return err })
		return reply, err
	}}
	streams := []grpc.StreamServerInterceptor{func(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		return around(stream.Context(), func(context.Context) error { return next(server, stream) })
	}}
	for _, rules := range s.rules {
		unary, streams = append(unary, rl.Unary(rules)), append(streams, rl.Stream(rules))
	}
	return func(t *testing.T) string {
		listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
		server := grpc.NewServer(grpc.ChainUnaryInterceptor(unary...), grpc.ChainStreamInterceptor(streams...),
			grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error { return status.Error(codes.Unimplemented, "unknown") }))
		pb.RegisterTestServiceServer(server, &serveGRPC{service: s})
		go server.Serve(listener)
		t.Cleanup(server.Stop)
		return listener.Addr().String()
	}
}

func first(values []string) string { return append(values, "")[0] }

func (s *serveGRPC) EmptyCall(ctx context.Context, _ *pb.Empty) (*pb.Empty, error) {
	return new(pb.Empty), s.unary(ctx)
}

func (s *serveGRPC) UnaryCall(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	return new(pb.SimpleResponse), s.unary(ctx)
}

func (s *serveGRPC) FullDuplexCall(stream pb.TestService_FullDuplexCallServer) error {
	return s.stream(stream.Context(), func() (string, error) {
		message, err := stream.Recv()
		return string(message.GetPayload().GetBody()), err
	})
}

// outside puts a function around the calls of a Connect server.
type outside struct {
	connect.Interceptor
	service
}

func (o outside) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (reply connect.AnyResponse, err error) {
		err = o.around(ctx, request.Header().Get("Authorization"), func(ctx context.Context) (err error) {
			reply, err = next(ctx, request)
			return err
		})
		return reply, err
	}
}

func (o outside) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		return o.around(ctx, conn.RequestHeader().Get("Authorization"), func(ctx context.Context) error { return next(ctx, conn) })
	}
}

func limitConnect(s service) func(*testing.T) string {
	rl := connectlimit.New(s.limiter)
	rl.Caller.User, rl.Refuse, rl.Fail = s.user, s.refuse, s.fail
	var interceptors []connect.Interceptor
	if s.around != nil {
		interceptors = append(interceptors, outside{nil, s})
	}
	for _, rules := range s.rules {
		interceptors = append(interceptors, rl.Limit(rules))
	}
	options := connect.WithInterceptors(interceptors...)
	unary := func(ctx context.Context, _ *connect.Request[pb.Empty]) (*connect.Response[pb.Empty], error) {
		return connect.NewResponse(new(pb.Empty)), s.unary(ctx)
	}
	stream := func(ctx context.Context, stream *connect.BidiStream[pb.StreamingOutputCallRequest, pb.StreamingOutputCallResponse]) error {
		return s.stream(ctx, func() (string, error) {
			message, err := stream.Receive()
			return string(message.GetPayload().GetBody()), err
		})
	}
	return func(t *testing.T) string {
		mux := http.NewServeMux()
		mux.Handle(emptyCall, connect.NewUnaryHandler(emptyCall, unary, options))
		mux.Handle(unaryCall, connect.NewUnaryHandler(unaryCall, unary, options))
		mux.Handle(duplex, connect.NewBidiStreamHandler(duplex, stream, options))
		server := httptest.NewUnstartedServer(mux)
		server.Config.Protocols = http2()
		server.Start()
		t.Cleanup(server.Close)
		return server.Listener.Addr().String()
	}
}

func http2() *http.Protocols {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	return protocols
}

// bind returns a function that serves what s has. It panics if the rules are invalid.
func (f framework) bind(s service) func(*testing.T) string {
	if s.limiter == nil {
		s.limiter = limit.New(nil, nil)
	}
	if s.unary == nil {
		s.unary = func(context.Context) error { return nil }
	}
	if s.stream == nil {
		s.stream = func(context.Context, func() (string, error)) error { return nil }
	}
	return f.limit(s)
}

// A client calls one server over a loopback connection.
type client struct {
	t       *testing.T
	http    *http.Client
	address string
	options []connect.ClientOption
}

func (f framework) serve(t *testing.T, s service, options ...connect.ClientOption) client {
	t.Helper()
	transport := &http.Transport{Protocols: http2()}
	t.Cleanup(transport.CloseIdleConnections)
	return client{t, &http.Client{Transport: transport}, f.bind(s)(t), append(options, f.protocol...)}
}

// start serves calls that rules admit.
func (f framework) start(t *testing.T, l *limit.Limiter, rules ...limit.RuleSet) client {
	t.Helper()
	return f.serve(t, service{limiter: l, rules: rules})
}

// An answer is the outcome of a call.
type answer struct {
	t       *testing.T
	header  http.Header // of the response, or the Meta of the error
	err     error
	code    codes.Code
	text    string // of the error, without the code
	details []any
}

func (c client) answer(header http.Header, err error) answer {
	c.t.Helper()
	a := answer{t: c.t, header: header, err: err}
	var failed *connect.Error
	if errors.As(err, &failed) {
		a.code, a.text = codes.Code(failed.Code()), failed.Message()
		if header == nil {
			a.header = failed.Meta()
		}
		for _, detail := range failed.Details() {
			message := must.Get(detail.Value())(c.t)
			a.details = append(a.details, message)
		}
	} else {
		require.NoError(c.t, err)
	}
	return a
}

// call calls EmptyCall with a header given as name, value, name, value.
func (c client) call(header ...string) answer {
	c.t.Helper()
	return c.method(c.t.Context(), emptyCall, header...)
}

func (c client) method(ctx context.Context, method string, header ...string) answer {
	c.t.Helper()
	request := connect.NewRequest(new(pb.Empty))
	for i := 0; i < len(header); i += 2 {
		request.Header().Add(header[i], header[i+1])
	}
	response, err := connect.NewClient[pb.Empty, pb.Empty](c.http, "http://"+c.address+method, c.options...).CallUnary(ctx, request)
	if err != nil {
		return c.answer(nil, err)
	}
	return c.answer(response.Header(), nil)
}

type stream = connect.BidiStreamForClient[pb.StreamingOutputCallRequest, pb.StreamingOutputCallResponse]

// open opens a stream.
func (c client) open(ctx context.Context) *stream {
	c.t.Helper()
	stream := connect.NewClient[pb.StreamingOutputCallRequest, pb.StreamingOutputCallResponse](c.http,
		"http://"+c.address+duplex, c.options...).CallBidiStream(ctx)
	// The request goes out with the first message. A stream that was refused
	// already returns io.EOF.
	if err := stream.Send(new(pb.StreamingOutputCallRequest)); err != nil {
		require.ErrorIs(c.t, err, io.EOF)
	}
	return stream
}

// end reads a stream to its end.
func (c client) end(s *stream) answer {
	c.t.Helper()
	defer s.CloseResponse()
	_, err := s.Receive()
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return c.answer(s.ResponseHeader(), err)
}

// duplex opens a stream, and reads it to its end.
func (c client) duplex(ctx context.Context) answer {
	c.t.Helper()
	s := c.open(ctx)
	s.CloseRequest()
	return c.end(s)
}

func (a answer) admitted(comment ...any) {
	a.t.Helper()
	require.NoError(a.t, a.err, comment...)
}

// refused requires a refusal by a rule, and returns after how long to retry.
func (a answer) refused(rule string) time.Duration {
	a.t.Helper()
	require.Equal(a.t, codes.ResourceExhausted, a.code, a.err)
	var violated []string
	for _, detail := range a.details {
		if failure, ok := detail.(*errdetails.QuotaFailure); ok {
			for _, v := range failure.Violations {
				violated = append(violated, v.Subject)
			}
		}
	}
	assert.Equal(a.t, []string{rule}, violated)
	return a.retry()
}

// retry returns after how long to retry, or -1.
func (a answer) retry() time.Duration {
	for _, detail := range a.details {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			return info.RetryDelay.AsDuration()
		}
	}
	return -1
}

// unavailable requires the answer to a call that could not be decided.
func (a answer) unavailable() {
	a.t.Helper()
	require.Equal(a.t, codes.Unavailable, a.code, a.err)
	assert.Equal(a.t, "limit: the rate limiter is unavailable", a.text)
	assert.Len(a.t, a.details, 1)
	assert.Equal(a.t, time.Second, a.retry())
	assert.Equal(a.t, "1", a.header.Get("Retry-After"))
}
