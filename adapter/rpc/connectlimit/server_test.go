package connectlimit_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const (
	oneCall  = "/test.Service/One"
	twoCall  = "/test.Service/Two"
	duplexed = "/test.Service/Duplex"
)

// protocols are those that a Connect server speaks.
var protocols = map[string][]connect.ClientOption{
	"Connect":  nil,
	"gRPC":     {connect.WithGRPC()},
	"gRPC-Web": {connect.WithGRPCWeb()},
}

type (
	empty  = emptypb.Empty
	text   = wrapperspb.StringValue
	stream = connect.BidiStream[text, empty]
)

// A service runs functions of the test; nil ones return at once.
type service struct {
	unary  func(context.Context) error
	stream func(context.Context, *stream) error
}

func (s *service) call(ctx context.Context, _ *connect.Request[empty]) (*connect.Response[empty], error) {
	if s.unary != nil {
		if err := s.unary(ctx); err != nil {
			return nil, err
		}
	}
	return connect.NewResponse(new(empty)), nil
}

func (s *service) duplex(ctx context.Context, stream *stream) error {
	if s.stream != nil {
		return s.stream(ctx, stream)
	}
	return nil
}

// A client calls one server over a loopback connection of HTTP/2.
type client struct {
	t        *testing.T
	one, two *connect.Client[empty, empty]
	streams  *connect.Client[text, empty]
}

func serve(t *testing.T, s *service, protocol string, interceptors ...connect.Interceptor) client {
	t.Helper()
	return serveClient(t, s, protocols[protocol], interceptors...)
}

func serveClient(t *testing.T, s *service, of []connect.ClientOption, interceptors ...connect.Interceptor) client {
	t.Helper()
	options := connect.WithInterceptors(interceptors...)
	mux := http.NewServeMux()
	mux.Handle(oneCall, connect.NewUnaryHandler(oneCall, s.call, options))
	mux.Handle(twoCall, connect.NewUnaryHandler(twoCall, s.call, options))
	mux.Handle(duplexed, connect.NewBidiStreamHandler(duplexed, s.duplex, options))
	server := httptest.NewUnstartedServer(mux)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	return client{
		t:       t,
		one:     connect.NewClient[empty, empty](server.Client(), server.URL+oneCall, of...),
		two:     connect.NewClient[empty, empty](server.Client(), server.URL+twoCall, of...),
		streams: connect.NewClient[text, empty](server.Client(), server.URL+duplexed, of...),
	}
}

// An answer is the outcome of a call.
type answer struct {
	t      *testing.T
	header http.Header // of the response, or the Meta of the error
	err    error
}

// call calls One with a header given as name, value, name, value.
func (c client) call(header ...string) answer {
	c.t.Helper()
	return c.unary(c.one, header...)
}

func (c client) unary(to *connect.Client[empty, empty], header ...string) answer {
	c.t.Helper()
	request := connect.NewRequest(new(empty))
	for i := 0; i < len(header); i += 2 {
		request.Header().Add(header[i], header[i+1])
	}
	response, err := to.CallUnary(c.t.Context(), request)
	if err != nil {
		return answer{c.t, meta(err), err}
	}
	return answer{c.t, response.Header(), nil}
}

func meta(err error) http.Header {
	var failed *connect.Error
	if errors.As(err, &failed) {
		return failed.Meta()
	}
	return nil
}

// open opens a stream.
func (c client) open(ctx context.Context) *connect.BidiStreamForClient[text, empty] {
	c.t.Helper()
	stream := c.streams.CallBidiStream(ctx)
	// The request goes out with the first message. A stream that was refused
	// already returns io.EOF.
	if err := stream.Send(new(text)); err != nil {
		require.ErrorIs(c.t, err, io.EOF)
	}
	return stream
}

// duplex opens a stream, and reads it to its end.
func (c client) duplex(ctx context.Context) answer {
	c.t.Helper()
	stream := c.open(ctx)
	stream.CloseRequest()
	defer stream.CloseResponse()
	_, err := stream.Receive()
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return answer{c.t, stream.ResponseHeader(), err}
}

func (a answer) admitted(comment ...any) {
	a.t.Helper()
	require.NoError(a.t, a.err, comment...)
}

// refused requires a refusal by rules, and returns after how long to retry.
func (a answer) refused(rules ...string) time.Duration {
	a.t.Helper()
	require.Equal(a.t, connect.CodeResourceExhausted, connect.CodeOf(a.err), a.err)
	var violated []string
	delay := time.Duration(-1)
	for _, message := range details(a) {
		switch detail := message.(type) {
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

func details(a answer) (messages []any) {
	a.t.Helper()
	var failed *connect.Error
	require.ErrorAs(a.t, a.err, &failed)
	for _, detail := range failed.Details() {
		message, err := detail.Value()
		require.NoError(a.t, err)
		messages = append(messages, message)
	}
	return messages
}

// unavailable requires the answer to a call that could not be decided.
func (a answer) unavailable() {
	a.t.Helper()
	require.Equal(a.t, connect.CodeUnavailable, connect.CodeOf(a.err), a.err)
	assert.Equal(a.t, "unavailable: limit: the rate limiter is unavailable", a.err.Error())
	messages := details(a)
	require.Len(a.t, messages, 1)
	assert.Equal(a.t, time.Second, messages[0].(*errdetails.RetryInfo).RetryDelay.AsDuration())
	assert.Equal(a.t, "1", a.header.Get("Retry-After"))
}
