package proof

import (
	"os"
	"testing"

	"github.com/redis/go-redis/v9"
)

// TestMain runs the tests, or what a test has started this binary for.
func TestMain(m *testing.M) {
	if args := os.Getenv(driverVar); args != "" {
		drive(args)
	}
	if url := os.Getenv(holderVar); url != "" {
		hold(url)
	}
	if url := os.Getenv(gatewayVar); url != "" {
		stream(url)
	}
	if url := os.Getenv(loserVar); url != "" {
		lose(url)
	}
	if url := os.Getenv(byteServerVar); url != "" {
		options, err := redis.ParseURL(url)
		if err == nil {
			err = serveBytes(redis.NewClient(options))
		}
		if err != nil {
			panic(err)
		}
		os.Exit(0)
	}
	built, _ = os.MkdirTemp("", "proof")
	code := m.Run()
	_ = os.RemoveAll(built)
	os.Exit(code)
}

// built is a directory for programs that tests build.
var built string
