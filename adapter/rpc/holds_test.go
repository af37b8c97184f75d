package rpc_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/must"
)

// once admits one call.
func once(r limit.Refusal) limit.RuleSet {
	return limit.Named("api", limit.Rule{Name: "once", Key: limit.Everyone, Limit: 1, Window: time.Hour, OnRefusal: r})
}

// TestDegrades runs the method of calls that are refused.
func TestDegrades(t *testing.T) {
	each(t, func(t *testing.T, f framework) {
		var seen []bool
		c := f.serve(t, service{rules: []limit.RuleSet{once(limit.Refusal{Degrade: true})}, unary: func(ctx context.Context) error {
			seen = append(seen, limit.DecisionFrom(ctx).Outcome() == "degraded")
			return nil
		}})
		c.call().admitted()
		a := c.call()
		a.admitted()
		assert.Equal(t, []bool{false, true}, seen)
		assert.Equal(t, `"once";r=0;t=3600`, a.header.Get("RateLimit"))
		assert.Empty(t, a.header.Get("Retry-After"))
	})
}

// TestBusy answers with another code.
func TestBusy(t *testing.T) {
	each(t, func(t *testing.T, f framework) {
		c := f.start(t, nil, once(limit.Refusal{Status: http.StatusServiceUnavailable}))
		c.call().admitted()
		a := c.call()
		assert.Equal(t, codes.Unavailable, a.code)
		assert.Contains(t, a.text, "limit: refused by once, retry after ")
		assert.Len(t, a.details, 2)
		assert.Equal(t, "3600", a.header.Get("Retry-After"))
	})
}

var slots = limit.Named("slots", limit.Rule{Key: limit.Everyone, Limit: 1, Algorithm: limit.Concurrency{}})

// left returns how many slots are free.
func left(t *testing.T, l *limit.Limiter) int64 {
	t.Helper()
	policy := must.Get(l.Policy(slots))(t)
	d := must.Get(policy.Peek(t.Context(), limit.Request{}))(t)
	return slices.Collect(d.Rules())[0].Remaining
}

// TestWaits has a call wait until a stream has ended.
func TestWaits(t *testing.T) {
	each(t, func(t *testing.T, f framework) {
		entered := make(chan bool)
		c := f.serve(t, service{rules: []limit.RuleSet{slots.OnRefusal(limit.Refusal{Wait: time.Minute})},
			stream: func(_ context.Context, receive func() (string, error)) error {
				close(entered)
				for {
					if _, err := receive(); err != nil {
						assert.ErrorIs(t, err, io.EOF)
						return nil
					}
				}
			}})
		stream := c.open(t.Context())
		<-entered
		answers := make(chan answer)
		go func() { answers <- c.call() }()
		select {
		case a := <-answers:
			t.Fatal("it did not wait", a.err)
		case <-time.After(50 * time.Millisecond): // it waits, or has not begun
		}
		require.NoError(t, stream.CloseRequest())
		(<-answers).admitted()
	})
}

// TestLeases holds a slot while a stream runs, and releases it however the stream
// ends.
func TestLeases(t *testing.T) {
	each(t, func(t *testing.T, f framework) {
		entered := make(chan context.Context, 1)
		limiter := limit.New(nil, nil)
		c := f.serve(t, service{limiter: limiter, rules: []limit.RuleSet{slots}, stream: func(ctx context.Context, receive func() (string, error)) error {
			entered <- ctx
			for {
				switch text, err := receive(); {
				case errors.Is(err, io.EOF):
					return nil
				case err != nil:
					return err
				case text != "":
					return f.newError(codes.DataLoss, "on purpose")
				}
			}
		}})
		for name, test := range map[string]struct {
			end  func(s *stream, cancel func())
			want codes.Code
		}{
			"return": {func(s *stream, _ func()) { s.CloseRequest() }, codes.OK},
			"error": {func(s *stream, _ func()) {
				s.Send(&pb.StreamingOutputCallRequest{Payload: &pb.Payload{Body: []byte("fail")}})
			}, codes.DataLoss},
			"cancel": {func(_ *stream, cancel func()) { cancel() }, codes.Canceled},
		} {
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
			assert.Equal(t, test.want, c.end(stream).code, name)
			// The handler of a stream that was canceled may still run.
			require.Eventually(t, func() bool { return left(t, limiter) == 1 }, 10*time.Second, time.Millisecond, name)
			cancel()
		}
	})
}

// TestLeaseOfPanic releases the slot of a handler that panics.
func TestLeaseOfPanic(t *testing.T) {
	each(t, func(t *testing.T, f framework) {
		limiter := limit.New(nil, nil)
		c := f.serve(t, service{
			limiter: limiter,
			rules:   []limit.RuleSet{slots},
			around: func(ctx context.Context, _ string, next func(context.Context) error) (err error) {
				defer func() {
					if recover() != nil {
						err = f.newError(codes.Internal, "a panic")
					}
				}()
				return next(ctx)
			},
			unary: func(context.Context) error { panic("on purpose") },
		})
		for range 3 {
			assert.Equal(t, codes.Internal, c.call().code)
			assert.EqualValues(t, 1, left(t, limiter))
		}
	})
}

// TestQueue has calls wait for their slots, one each 200 ms.
func TestQueue(t *testing.T) {
	each(t, func(t *testing.T, f framework) {
		t.Parallel()
		c := f.start(t, nil, limit.Named("queue",
			limit.Rule{Key: limit.Everyone, Limit: 5, Window: time.Second, Algorithm: limit.Queue{Burst: 2}}))
		began := time.Now()
		for range 3 {
			c.call().admitted()
		}
		assert.GreaterOrEqual(t, time.Since(began), 390*time.Millisecond)
	})
}

var slow = limit.Named("slow", limit.Rule{Name: "slow", Key: limit.Everyone, Limit: 1, Window: time.Hour, Algorithm: limit.Queue{Burst: 9}})

// TestQueueDeadline refuses at once a call that ends before its slot.
func TestQueueDeadline(t *testing.T) {
	each(t, func(t *testing.T, f framework) {
		c := f.start(t, nil, slow)
		c.call().admitted()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		assert.Greater(t, c.duplex(ctx).refused("slow"), 58*time.Minute)
		assert.NoError(t, ctx.Err())
	})
}

// TestQueueCanceled cancels a call that waits: its handler does not run.
func TestQueueCanceled(t *testing.T) {
	each(t, func(t *testing.T, f framework) {
		decided, ended, ran := make(chan bool, 2), make(chan error, 2), 0
		c := f.serve(t, service{
			limiter: limit.New(nil, &limit.Options{Observe: func(_ *http.Request, d limit.Decision, _ error) { decided <- d.Delay > 0 }}),
			rules:   []limit.RuleSet{slow},
			around: func(ctx context.Context, _ string, next func(context.Context) error) error {
				err := next(ctx)
				ended <- err
				return err
			},
			unary: func(context.Context) error { ran++; return nil },
		})
		c.call().admitted()
		require.False(t, <-decided)
		require.NoError(t, <-ended)

		ctx, cancel := context.WithCancel(t.Context())
		canceled := make(chan answer, 1)
		go func() { canceled <- c.method(ctx, emptyCall) }()
		require.True(t, <-decided)
		cancel()
		assert.Equal(t, codes.Canceled, (<-canceled).code)
		assert.ErrorIs(t, <-ended, context.Canceled)
		assert.Equal(t, 1, ran)
	})
}
