package connectlimit_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/adapter/rpc/connectlimit"
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
	for protocol := range protocols {
		entered := make(chan context.Context, 1)
		limiter := limit.New(nil, nil)
		c := serve(t, &service{stream: func(ctx context.Context, stream *stream) error {
			entered <- ctx
			for {
				switch message, err := stream.Receive(); {
				case errors.Is(err, io.EOF):
					return nil
				case err != nil:
					return err
				case message.Value != "":
					return connect.NewError(connect.CodeDataLoss, errors.New("on purpose"))
				}
			}
		}}, protocol, connectlimit.New(limiter).Limit(slots))

		type bidi = connect.BidiStreamForClient[text, empty]
		for name, test := range map[string]struct {
			end  func(s *bidi, cancel func())
			want connect.Code
		}{
			"return": {func(s *bidi, _ func()) { s.CloseRequest() }, 0},
			"error":  {func(s *bidi, _ func()) { s.Send(&text{Value: "fail"}) }, connect.CodeDataLoss},
			"cancel": {func(_ *bidi, cancel func()) { cancel() }, connect.CodeCanceled},
		} {
			name = protocol + ", " + name
			ctx, cancel := context.WithCancel(t.Context())
			stream := c.open(ctx)
			server := <-entered
			require.Zero(t, left(t, limiter), name)
			c.duplex(t.Context()).refused("global-concurrency")
			c.call().refused("global-concurrency")
			require.Zero(t, left(t, limiter), "a refused call releases nothing")
			assert.NoError(t, server.Err())
			assert.NotNil(t, limit.DecisionFrom(server).Lost(), "the handler can learn that its lease is lost")

			test.end(stream, cancel)
			if _, err := stream.Receive(); !errors.Is(err, io.EOF) {
				assert.Equal(t, test.want, connect.CodeOf(err), name)
			}
			// The handler of a stream that was canceled may still run.
			require.Eventually(t, func() bool { return left(t, limiter) == 1 }, 10*time.Second, time.Millisecond, name)
			cancel()
		}
	}
}

// TestQueue has calls wait for their slots, one each 200 ms.
func TestQueue(t *testing.T) {
	c := start(t, limit.New(nil, nil), limit.Named("queue",
		limit.Rule{Key: limit.Everyone, Limit: 5, Window: time.Second, Algorithm: limit.Queue{Burst: 2}}))
	began := time.Now()
	for range 3 {
		c.call().admitted()
	}
	assert.GreaterOrEqual(t, time.Since(began), 390*time.Millisecond)
}

var slow = limit.Named("slow", limit.Rule{Name: "slow", Key: limit.Everyone, Limit: 1, Window: time.Hour, Algorithm: limit.Queue{Burst: 9}})

// TestQueueDeadline refuses at once a call that ends before its slot.
func TestQueueDeadline(t *testing.T) {
	for protocol := range protocols {
		c := serve(t, new(service), protocol, connectlimit.New(limit.New(nil, nil)).Limit(slow))
		c.call().admitted()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		assert.Greater(t, c.duplex(ctx).refused("slow"), 58*time.Minute)
		assert.NoError(t, ctx.Err())
		cancel()
	}
}

// TestQueueCanceled cancels a call that waits: its handler does not run.
func TestQueueCanceled(t *testing.T) {
	decided, ended := make(chan bool, 2), make(chan error, 2)
	limiter := limit.New(nil, &limit.Options{Observe: func(_ *http.Request, d limit.Decision, _ error) { decided <- d.Delay > 0 }})
	watch := connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
			response, err := next(ctx, request)
			ended <- err
			return response, err
		}
	})
	ran := 0
	c := serve(t, &service{unary: func(context.Context) error { ran++; return nil }}, "Connect",
		watch, connectlimit.New(limiter).Limit(slow))
	c.call().admitted()
	require.False(t, <-decided)
	require.NoError(t, <-ended)

	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := c.one.CallUnary(ctx, connect.NewRequest(new(empty)))
		failed <- err
	}()
	require.True(t, <-decided)
	cancel()
	assert.Equal(t, connect.CodeCanceled, connect.CodeOf(<-failed))
	assert.ErrorIs(t, <-ended, context.Canceled)
	assert.Equal(t, 1, ran)
}
