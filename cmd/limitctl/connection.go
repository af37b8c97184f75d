package main

import (
	"os"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/routelimit/limit/cmd/limitctl/internal/redisclient"
)

// A connection is the flags that name the Redis of programs.
type connection struct {
	redisclient.Address
	prefix string
}

// flags adds them. A flag that is not written has the value of a variable of the
// environment. That is not its default, since --help would show a password.
func (c *connection) flags(cmd *cobra.Command, prefix string) {
	f := cmd.Flags()
	f.StringVar(&c.URL, "redis", "", "`URL` of the Redis of the programs, such as redis://user:password@127.0.0.1:6379/0, rediss:// for TLS, or unix:///path/to/redis.sock; "+
		"without it, LIMITCTL_REDIS of the environment")
	c.Address.Flags(f)
	f.StringVar(&c.prefix, "prefix", "limit", prefix+"; without it, LIMITCTL_PREFIX of the environment")
	cmd.PreRun = func(*cobra.Command, []string) {
		if text := os.Getenv(redisclient.URLVariable); text != "" && !f.Changed("redis") {
			c.URL = text
		}
		if text := os.Getenv("LIMITCTL_PREFIX"); text != "" && !f.Changed("prefix") {
			c.prefix = text
		}
	}
}

// dial returns a client, which has not connected yet.
func (c *connection) dial() (redis.UniversalClient, error) {
	if err := redisclient.CheckPrefix("--prefix", c.prefix); err != nil {
		return nil, usageError{err}
	}
	client, err := c.Open()
	if err != nil {
		return nil, usageError{err}
	}
	return client, nil
}
