// Package redistest starts real Redis servers for tests, on free loopback
// ports, and stops them with the test.
package redistest

import (
	"context"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Environment variables of tests.
const (
	// AddrVar holds the address of a server to use instead of one of the
	// test's own, such as a miniredis if no redis-server is installed.
	AddrVar = "LIMIT_TEST_REDIS"

	// RequireVar makes tests fail rather than skip without a redis-server.
	RequireVar = "LIMIT_REQUIRE_REDIS"

	// HideVar has tests run as on a machine without a redis-server.
	HideVar = "LIMIT_HIDE_REDIS"
)

// Client returns a client of an empty database: on a server of the test's own,
// or on the one at [AddrVar]. It skips the test where there is neither.
func Client(t testing.TB, args ...string) *redis.Client {
	t.Helper()
	options := &redis.Options{Addr: os.Getenv(AddrVar), ContextTimeoutEnabled: true, ReadTimeout: time.Minute}
	switch {
	case options.Addr != "":
		// Packages are tested at the same time: each has a database of its own.
		options.DB = 1 + int(crc32.ChecksumIEEE([]byte(filepath.Base(os.Args[0])))%15)
	case Installed(t):
		options.Addr = Launch(t, args...).Addr
	default:
		t.Skipf("no redis-server is installed, and %s is not set", AddrVar)
	}
	client := Closing(t, redis.NewClient(options))
	if err := client.FlushDB(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	return client
}

// Closing returns a client, and closes it when the test ends.
func Closing[C io.Closer](t testing.TB, client C) C {
	t.Cleanup(func() { client.Close() })
	return client
}

// Real returns a client as [Client] does, of a server of the test's own. It
// skips the test where there is none to be had.
func Real(t testing.TB, args ...string) *redis.Client {
	t.Helper()
	if !Installed(t) || os.Getenv(AddrVar) != "" {
		t.Skip("needs a redis-server of its own")
	}
	return Client(t, args...)
}

// Installed reports whether there is a redis-server.
func Installed(t testing.TB) bool {
	t.Helper()
	if os.Getenv(HideVar) != "" {
		return false
	}
	_, err := exec.LookPath("redis-server")
	if err != nil && os.Getenv(RequireVar) != "" {
		t.Fatalf("%s is set: %v", RequireVar, err)
	}
	return err == nil
}

// ready waits until the server at addr answers.
func ready(addr string) error {
	client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for ; ; time.Sleep(5 * time.Millisecond) {
		err := client.Ping(ctx).Err()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s does not answer: %w", addr, err)
		}
	}
}

// freePort returns a port that stays free while its server is dead: neither it nor that of the
// Cluster's bus, 10,000 above, is among those that systems give to outgoing connections.
func freePort() string {
	for {
		port := strconv.Itoa(10_000 + rand.IntN(12_768))
		if listener, err := net.Listen("tcp", "127.0.0.1:"+port); err == nil {
			listener.Close()
			return port
		}
	}
}
