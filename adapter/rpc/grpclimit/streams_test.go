package grpclimit_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/adapter/rpc/grpclimit"
)

var slots = limit.Named("slots", limit.Concurrent(limit.Everyone, 1))

// left returns how many slots are free.
func left(t *testing.T, l *limit.Limiter) int64 {
	t.Helper()
	policy, err := l.Policy(slots)
	require.NoError(t, err)
	d, err := policy.Peek(t.Context(), limit.Request{})
	require.NoError(t, err)
	return d.Rules()[0].Remaining
}

// TestLeases holds a slot while a stream runs, and releases it however the stream
// ends.
func TestLeases(t *testing.T) {
	entered := make(chan context.Context, 1)
	limiter := limit.New(nil, nil)
	c := serve(t, &service{stream: func(stream testgrpc.TestService_FullDuplexCallServer) error {
		entered <- stream.Context()
		for {
			switch message, err := stream.Recv(); {
			case errors.Is(err, io.EOF):
				return nil
			case err != nil:
				return err
			case len(message.GetPayload().GetBody()) > 0:
				return status.Error(codes.DataLoss, "on purpose")
			}
		}
	}}, both(grpclimit.New(limiter), slots)...)

	for name, test := range map[string]struct {
		end  func(stream testgrpc.TestService_FullDuplexCallClient, cancel func())
		want codes.Code
	}{
		"return": {func(s testgrpc.TestService_FullDuplexCallClient, _ func()) { s.CloseSend() }, codes.OK},
		"error": {func(s testgrpc.TestService_FullDuplexCallClient, _ func()) {
			s.Send(&testgrpc.StreamingOutputCallRequest{Payload: &testgrpc.Payload{Body: []byte("fail")}})
		}, codes.DataLoss},
		"cancel": {func(_ testgrpc.TestService_FullDuplexCallClient, cancel func()) { cancel() }, codes.Canceled},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		stream, err := c.FullDuplexCall(ctx)
		require.NoError(t, err)
		server := <-entered
		require.Zero(t, left(t, limiter), name)
		c.duplex(t.Context()).refused("global-concurrency")
		c.empty().refused("global-concurrency")
		require.Zero(t, left(t, limiter), "a refused call releases nothing")
		assert.NoError(t, server.Err())

		test.end(stream, cancel)
		_, err = stream.Recv()
		if err == io.EOF {
			err = nil
		}
		assert.Equal(t, test.want, status.Code(err), name)
		// The handler of a stream that was canceled may still run.
		require.Eventually(t, func() bool { return left(t, limiter) == 1 }, 10*time.Second, time.Millisecond, name)
		cancel()
	}
}

// TestLeaseOfPanic releases the slot of a handler that panics.
func TestLeaseOfPanic(t *testing.T) {
	limiter := limit.New(nil, nil)
	recovering := func(ctx context.Context, message any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (_ any, err error) {
		defer func() {
			if recover() != nil {
				err = status.Error(codes.Internal, "a panic")
			}
		}()
		return handler(ctx, message)
	}
	c := serve(t, &service{unary: func(context.Context) error { panic("on purpose") }},
		grpc.ChainUnaryInterceptor(recovering, grpclimit.New(limiter).Unary(slots)))
	for range 3 {
		assert.Equal(t, codes.Internal, status.Code(c.empty().err))
		assert.EqualValues(t, 1, left(t, limiter))
	}
}

// TestLost checks that a handler learns from its context that its lease is lost.
func TestLost(t *testing.T) {
	lost := make(chan bool, 1)
	c := serve(t, &service{stream: func(stream testgrpc.TestService_FullDuplexCallServer) error {
		lost <- limit.DecisionFrom(stream.Context()).Lost() != nil
		return nil
	}}, both(grpclimit.New(limit.New(nil, nil)), slots)...)
	c.duplex(t.Context()).admitted()
	assert.True(t, <-lost)
}

// queue admits a call every 200 ms, and keeps two waiting.
var queue = limit.Named("queue", limit.Rule{Name: "queue", Key: limit.Everyone, Limit: 5, Window: time.Second,
	Algorithm: limit.Queue{Burst: 2}})

// TestQueue has calls wait for their slots.
func TestQueue(t *testing.T) {
	c := start(t, limit.New(nil, nil), queue)
	began := time.Now()
	for range 3 {
		c.empty().admitted()
	}
	assert.GreaterOrEqual(t, time.Since(began), 390*time.Millisecond)
}

// TestQueueDeadline refuses at once a call that ends before its slot.
func TestQueueDeadline(t *testing.T) {
	slow := limit.Named("slow", limit.Rule{Name: "slow", Key: limit.Everyone, Limit: 1, Window: time.Hour, Algorithm: limit.Queue{Burst: 9}})
	c := start(t, limit.New(nil, nil), slow)
	c.empty().admitted()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	assert.Greater(t, c.duplex(ctx).refused("slow"), 58*time.Minute)
	assert.NoError(t, ctx.Err())
}

// TestQueueCanceled cancels a call that waits: its handler does not run.
func TestQueueCanceled(t *testing.T) {
	slow := limit.Named("slow", limit.Rule{Key: limit.Everyone, Limit: 1, Window: time.Hour, Algorithm: limit.Queue{Burst: 9}})
	decided, ended := make(chan bool, 2), make(chan error, 2)
	limiter := limit.New(nil, &limit.Options{Observe: func(r *http.Request, d limit.Decision, err error) { decided <- d.Delay > 0 }})
	watch := func(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		err := handler(server, stream)
		ended <- err
		return err
	}
	ran := 0
	c := serve(t, &service{stream: func(testgrpc.TestService_FullDuplexCallServer) error { ran++; return nil }},
		grpc.ChainStreamInterceptor(watch, grpclimit.New(limiter).Stream(slow)))
	c.duplex(t.Context()).admitted()
	require.False(t, <-decided)
	require.NoError(t, <-ended)

	ctx, cancel := context.WithCancel(t.Context())
	_, err := c.FullDuplexCall(ctx)
	require.NoError(t, err)
	require.True(t, <-decided)
	cancel()
	assert.ErrorIs(t, <-ended, context.Canceled)
	assert.Equal(t, 1, ran)
}
