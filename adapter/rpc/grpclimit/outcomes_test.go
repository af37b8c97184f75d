package grpclimit_test

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/adapter/rpc/grpclimit"
)

// once admits one call.
func once(r limit.Refusal) limit.RuleSet {
	return limit.Named("api", limit.Rule{Name: "once", Key: limit.Everyone, Limit: 1, Window: time.Hour, OnRefusal: r})
}

// TestDegrades runs the method of calls that are refused.
func TestDegrades(t *testing.T) {
	s, seen := new(service), []bool(nil)
	s.unary = func(ctx context.Context) error {
		seen = append(seen, limit.DecisionFrom(ctx).Degraded())
		return nil
	}
	c := serve(t, s, both(grpclimit.New(limit.New(nil, nil)), once(limit.Refusal{Degrade: true}))...)
	c.empty().admitted()
	a := c.empty()
	a.admitted()
	assert.Equal(t, []bool{false, true}, seen)
	assert.Equal(t, []string{`"once";r=0;t=3600`}, a.header["ratelimit"])
	assert.Empty(t, a.header["retry-after"])
}

// TestBusy answers with another code.
func TestBusy(t *testing.T) {
	c := start(t, limit.New(nil, nil), once(limit.Refusal{Status: http.StatusServiceUnavailable}))
	c.empty().admitted()
	a := c.empty()
	assert.Equal(t, codes.Unavailable, status.Code(a.err))
	assert.Contains(t, status.Convert(a.err).Message(), "limit: refused by once, retry after ")
	assert.Len(t, status.Convert(a.err).Details(), 2)
	assert.Equal(t, []string{"3600"}, a.header["retry-after"])
}

// TestWaits has a call wait until a stream has ended.
func TestWaits(t *testing.T) {
	rules := limit.Named("slots", limit.Concurrent(limit.Everyone, 1)).OnRefusal(limit.Refusal{Wait: time.Minute})
	limiter := limit.New(nil, nil)
	entered := make(chan bool)
	c := serve(t, &service{stream: func(stream testgrpc.TestService_FullDuplexCallServer) error {
		close(entered)
		_, err := stream.Recv()
		assert.ErrorIs(t, err, io.EOF)
		return nil
	}}, both(grpclimit.New(limiter), rules)...)
	stream, err := c.FullDuplexCall(t.Context())
	require.NoError(t, err)
	<-entered
	answer := make(chan error)
	go func() {
		_, err := c.EmptyCall(t.Context(), new(testgrpc.Empty))
		answer <- err
	}()
	select {
	case err := <-answer:
		t.Fatal("it did not wait", err)
	case <-time.After(50 * time.Millisecond): // it waits, or has not begun
	}
	require.NoError(t, stream.CloseSend())
	assert.NoError(t, <-answer)
}

// TestNoSuchOutcomes checks what has no meaning for calls.
func TestNoSuchOutcomes(t *testing.T) {
	for _, refusal := range []limit.Refusal{{Redirect: "/busy"}, {Degrade: true, Fallback: http.NotFoundHandler()}} {
		for _, l := range []*limit.Limiter{limit.New(nil, nil), limit.New(nil, &limit.Options{OnRefusal: refusal})} {
			rules := once(refusal)
			func() {
				defer func() {
					err, _ := recover().(error)
					assert.ErrorContains(t, err, "a call cannot be redirected, nor sent to another handler")
				}()
				grpclimit.New(l).Unary(rules)
			}()
		}
	}
}
