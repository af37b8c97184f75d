package docs_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/logbook"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/operate"
	"github.com/routelimit/limit/stores/redisstore"
)

// TestDiagnostics runs the programs of docs/diagnostics.md: on a good Redis, on one that
// evicts, and without one.
func TestDiagnostics(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	listener.Close()
	for _, test := range []struct {
		addr, code, line string
	}{
		{redistest.Real(t).Options().Addr, "", ""},
		{redistest.Launch(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru").Addr, "LIMIT-304", "it evicts keys"},
		{listener.Addr().String(), "LIMIT-301", "connection refused"},
	} {
		client := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: test.addr}))
		book := new(logbook.Book)
		err := ready(client, book.Log())
		lines := book.Lines()
		if test.code == "" {
			assert.NoError(t, err)
			assert.Empty(t, lines)
			continue
		}
		require.Len(t, lines, 1)
		assert.Contains(t, lines[0], "code="+test.code)
		assert.Contains(t, lines[0], test.line)
		assert.Equal(t, test.code == "LIMIT-301", err != nil)
	}
}

func ready(client *redis.Client, logger *slog.Logger) error {
	limiter := limit.New(redisstore.New(client, nil), &limit.Options{
		Silence: []string{"LIMIT-306"}, // no rule has a calendar window
	})
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	problems := operate.Check(ctx, limiter)
	var problem *core.Diagnosis
	if errors.As(problems, &problem) { // the first
		logger.Warn("rate limits", "code", problem.Code, "problems", problems)
	}
	if problem != nil && problem.Code == "LIMIT-301" {
		return problems // this program does not serve without Redis
	}
	return nil
}
