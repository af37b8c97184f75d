package control_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/ops/control"
)

// A slowRedis has no documents. Its answer to a read takes the time of the turn, and
// the last turn is that of all further reads.
type slowRedis struct {
	redis.UniversalClient // not called
	turns                 []time.Duration
	reads                 int
	err                   error // of all reads
}

func (s *slowRedis) Get(ctx context.Context, _ string) *redis.StringCmd {
	turn := s.turns[min(s.reads, len(s.turns)-1)]
	s.reads++
	select {
	case <-ctx.Done():
		return redis.NewStringResult("", ctx.Err())
	case <-time.After(turn):
		return redis.NewStringResult("", s.err)
	}
}

// TestUnreadMatters checks that a read that fails is logged only if changes may arrive
// later than within a second.
func TestUnreadMatters(t *testing.T) {
	const fast, late = time.Millisecond, time.Minute
	for _, test := range []struct {
		name  string
		turns []time.Duration
		err   error
		code  string        // of the warning, if there is one
		at    time.Duration // of it
	}{
		{"one slow read", []time.Duration{fast, fast, late, fast}, nil, "", 0},
		{"slow reads now and then", []time.Duration{fast, late, fast, late, fast, late, fast}, nil, "", 0},
		{"two slow reads in a row", []time.Duration{fast, late, late, fast}, nil, "LIMIT-401", 1201 * time.Millisecond},
		{"no answers any more", []time.Duration{fast, late}, nil, "LIMIT-401", 1201 * time.Millisecond},
		{"nothing read before Watch returns", []time.Duration{late, fast}, nil, "LIMIT-401", 300 * time.Millisecond},
		{"a missing right", []time.Duration{fast}, errors.New("NOPERM no"), "LIMIT-402", time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, start := &slowRedis{turns: test.turns, err: cmp.Or(test.err, error(redis.Nil))}, time.Now()
				var log bytes.Buffer
				var at time.Duration
				logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
					if a.Key == slog.TimeKey && at == 0 {
						at = a.Value.Time().Sub(start)
					}
					return a
				}}))
				ctx, cancel := context.WithCancel(t.Context())
				require.NoError(t, control.New(client, &control.Options{Log: logger}).Watch(ctx, "flags", func(map[string]control.Document) {}))
				time.Sleep(10 * time.Second)
				cancel()
				synctest.Wait()
				assert.Equal(t, test.at, at)
				assert.Equal(t, min(len(test.code), 1), strings.Count(log.String(), "level=WARN"), log.String())
				assert.Contains(t, log.String(), test.code)
				assert.Equal(t, test.code == "LIMIT-401", strings.Contains(log.String(), "no answer of Redis within 300ms"))
				assert.LessOrEqual(t, client.reads, 24, "reads in ten seconds: every half second, and after a failure until it is logged")
			})
		})
	}
}
