package redisstore

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
)

// TestSpan compares a span with a context of context.WithTimeout.
func TestSpan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, caller := range map[string]func() (context.Context, context.CancelFunc){
			"ends with the caller":    func() (context.Context, context.CancelFunc) { return context.WithCancel(t.Context()) },
			"has ended":               func() (context.Context, context.CancelFunc) { return context.WithTimeout(t.Context(), -1) },
			"ends before the timeout": func() (context.Context, context.CancelFunc) { return context.WithTimeout(t.Context(), time.Second) },
			"ends after the timeout":  func() (context.Context, context.CancelFunc) { return context.WithTimeout(t.Context(), time.Hour) },
			"never ends":              func() (context.Context, context.CancelFunc) { return context.Background(), func() {} },
			"has a value, and never ends": func() (context.Context, context.CancelFunc) {
				return context.WithValue(context.Background(), key{}, 1), func() {}
			},
		} {
			ctx, end := caller()
			var s span
			leave := s.begin(ctx, time.Minute)
			want, cancel := context.WithTimeout(ctx, time.Minute)
			child, done := context.WithCancel(&s)
			same := func() {
				t.Helper()
				assert.Equal(t, want.Err(), s.Err(), name)
				select {
				case <-s.Done():
					assert.Error(t, want.Err(), name)
				default:
					assert.NoError(t, want.Err(), name)
				}
				synctest.Wait()
				assert.Equal(t, want.Err(), child.Err(), name)
			}
			at, _ := s.Deadline()
			wanted, _ := want.Deadline()
			assert.True(t, wanted.Equal(at), "%s: %v, not %v", name, at, wanted)
			assert.Equal(t, want.Value(key{}), s.Value(key{}), name)
			same()
			end()
			same()
			cancel()
			s.cancel(context.Canceled)
			same()
			done()
			leave()
		}
	})
}

type key struct{}

// TestOverdue has a call end in time although nothing else ends it.
func TestOverdue(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer client.Close()
	store := New(client, nil)
	c := new(invocation)
	defer c.begin(t.Context(), -time.Millisecond)()
	store.overdue(c)
	<-c.Done()
	assert.ErrorIs(t, c.Err(), context.DeadlineExceeded)
}
