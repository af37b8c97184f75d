package grpclimit_test

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

const (
	emptyCall = "/grpc.testing.TestService/EmptyCall"
	unaryCall = "/grpc.testing.TestService/UnaryCall"
	duplex    = "/grpc.testing.TestService/FullDuplexCall"
)

// A service runs functions of the test; nil ones return at once.
type service struct {
	testgrpc.UnimplementedTestServiceServer
	unary  func(context.Context) error
	stream func(testgrpc.TestService_FullDuplexCallServer) error
}

func (s *service) EmptyCall(ctx context.Context, _ *testgrpc.Empty) (*testgrpc.Empty, error) {
	if s.unary != nil {
		return new(testgrpc.Empty), s.unary(ctx)
	}
	return new(testgrpc.Empty), nil
}

func (s *service) UnaryCall(context.Context, *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
	return new(testgrpc.SimpleResponse), nil
}

func (s *service) FullDuplexCall(stream testgrpc.TestService_FullDuplexCallServer) error {
	if s.stream != nil {
		return s.stream(stream)
	}
	return nil
}

// A client calls one server over a loopback connection.
type client struct {
	t    *testing.T
	conn *grpc.ClientConn
	testgrpc.TestServiceClient
}

func serve(t *testing.T, s *service, options ...grpc.ServerOption) client {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer(options...)
	testgrpc.RegisterTestServiceServer(server, s)
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return client{t, conn, testgrpc.NewTestServiceClient(conn)}
}

// An answer is the outcome of a call.
type answer struct {
	t      *testing.T
	header metadata.MD
	err    error
}

// empty calls EmptyCall with metadata given as name, value, name, value.
func (c client) empty(md ...string) answer {
	c.t.Helper()
	a := answer{t: c.t}
	_, a.err = c.EmptyCall(metadata.AppendToOutgoingContext(c.t.Context(), md...), new(testgrpc.Empty), grpc.Header(&a.header))
	return a
}

// duplex opens a stream, and reads it to its end.
func (c client) duplex(ctx context.Context) answer {
	c.t.Helper()
	a := answer{t: c.t}
	stream, err := c.FullDuplexCall(ctx)
	require.NoError(c.t, err)
	require.NoError(c.t, stream.CloseSend())
	if _, a.err = stream.Recv(); a.err == io.EOF {
		a.err = nil
	}
	a.header, _ = stream.Header()
	return a
}

func (a answer) admitted(comment ...any) {
	a.t.Helper()
	require.NoError(a.t, a.err, comment...)
}

// refused requires a refusal by rules, and returns after how long to retry.
func (a answer) refused(rules ...string) time.Duration {
	a.t.Helper()
	require.Equal(a.t, codes.ResourceExhausted, status.Code(a.err), a.err)
	var violated []string
	delay := time.Duration(-1)
	for _, detail := range status.Convert(a.err).Details() {
		switch detail := detail.(type) {
		case *errdetails.QuotaFailure:
			for _, v := range detail.Violations {
				violated = append(violated, v.Subject)
			}
		case *errdetails.RetryInfo:
			delay = detail.RetryDelay.AsDuration()
		}
	}
	assert.Equal(a.t, rules, violated)
	return delay
}

// unavailable requires the answer to a call that could not be decided.
func (a answer) unavailable() {
	a.t.Helper()
	s := status.Convert(a.err)
	require.Equal(a.t, codes.Unavailable, s.Code(), a.err)
	assert.Equal(a.t, "limit: the rate limiter is unavailable", s.Message())
	require.Len(a.t, s.Details(), 1)
	assert.Equal(a.t, time.Second, s.Details()[0].(*errdetails.RetryInfo).RetryDelay.AsDuration())
	assert.Equal(a.t, []string{"1"}, a.header["retry-after"])
}
