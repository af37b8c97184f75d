package access_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/ops/access"
	"github.com/routelimit/limit/ops/control"
	"github.com/routelimit/limit/stores/redisstore"
)

var update = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("ok\n")) })

// send sends a request from an address, and returns the status.
func send(h http.Handler, address string) int {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, from(address+":80"))
	return w.Code
}

func Example() {
	ours, err := access.Parse(strings.NewReader("10.0.0.0/8  # the office"), nil)
	if err != nil {
		log.Fatal(err)
	}
	bad, err := access.Parse(strings.NewReader("198.51.100.0/24\nagent BadBot"), nil)
	if err != nil {
		log.Fatal(err)
	}
	limiter := limit.New(nil, &limit.Options{Exempt: ours.Matches, Bar: bad.Bar})
	h := limiter.Limit(limit.Rules(limit.Global(time.Minute, 1)))(update)

	for _, address := range []string{"192.0.2.1", "192.0.2.1", "10.0.0.1", "10.0.0.1", "198.51.100.7"} {
		fmt.Println(address, send(h, address))
	}
	// Output:
	// 192.0.2.1 200
	// 192.0.2.1 429
	// 10.0.0.1 200
	// 10.0.0.1 200
	// 198.51.100.7 403
}

func Example_requestFields() {
	limiter := limit.New(nil, &limit.Options{
		Exempt: func(c limit.Client) bool { return c.Request.URL.Path == "/healthz" },
		Bar: func(c limit.Client) time.Duration {
			if c.Request.UserAgent() == "" {
				return limit.Never
			}
			return 0
		},
	})
	h := limiter.Limit(limit.Rules(limit.Global(time.Minute, 1)))(update)
	fmt.Println(send(h, "192.0.2.1"))
	// Output:
	// 403
}

// TestFileOfPage is the program of docs/access.md that follows a file.
func TestFileOfPage(t *testing.T) {
	path := t.TempDir() + "/barred"
	require.NoError(t, os.WriteFile(path, []byte("198.51.100.0/24\n"), 0o600))
	limiter, err := withFile(t.Context(), path)
	require.NoError(t, err)
	h := limiter.Limit(limit.Rules(limit.Global(time.Minute, 1)))(update)
	r := from("192.0.2.1:80", "X-Forwarded-For", "198.51.100.7")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	assert.Equal(t, http.StatusForbidden, w.Code)
}

func withFile(ctx context.Context, path string) (*limit.Limiter, error) {
	bad, err := access.Watch(ctx, path, nil)
	if err != nil {
		return nil, err
	}
	return limit.New(nil, &limit.Options{Proxies: limit.Proxies{Hops: 1}, Bar: bad.Bar}), nil
}

// TestBansOfPage is the program of docs/access.md with bans, on two instances.
func TestBansOfPage(t *testing.T) {
	addr := redistest.Launch(t).Addr
	bad := mustParse(t, "198.51.100.0/24")
	var instances []*instance
	var bans *access.Bans
	for range 2 {
		var limiter *limit.Limiter
		limiter, bans = withBans(t.Context(), addr, bad)
		instances = append(instances, &instance{handler: limiter.Limit(limit.Rules(limit.Global(time.Minute, 100_000)))(update)})
	}
	require.NoError(t, barScanner(t.Context(), bans))
	answer(t, time.Second, http.StatusForbidden, from("203.0.113.9:80"), instances)
	assert.Equal(t, http.StatusForbidden, send(instances[0].handler, "198.51.100.7"))
	assert.Equal(t, http.StatusOK, send(instances[0].handler, "192.0.2.1"))
}

func withBans(ctx context.Context, addr string, bad *access.List) (*limit.Limiter, *access.Bans) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	bans := access.NewBans(ctx, control.New(client, &control.Options{Prefix: "shop"}), nil)
	limiter := limit.New(redisstore.New(client, &redisstore.Options{Prefix: "shop"}), &limit.Options{
		Instances: 2,
		Bar:       func(c limit.Client) time.Duration { return max(bad.Bar(c), bans.Bar(c)) },
	})
	return limiter, bans
}

func barScanner(ctx context.Context, bans *access.Bans) error {
	return bans.Ban(ctx, "203.0.113.9", 2*time.Hour, "ann", "scans for /wp-admin")
}
