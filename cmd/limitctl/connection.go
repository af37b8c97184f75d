package main

import (
	"os"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/routelimit/limit/cmd/limitctl/internal/redisclient"
)

// A connection is the flags that name the Redis of programs.
type connection struct {
	url, prefix string
	cluster     bool
}

func (c *connection) flags(cmd *cobra.Command, prefix string) {
	redisFlag(cmd, &c.url, "the Redis of the programs")
	cmd.Flags().BoolVar(&c.cluster, "cluster", false, "the Redis is a Cluster, and the URL is one of its nodes")
	prefixFlag(cmd, &c.prefix, prefix)
}

// redisFlag adds --redis.
func redisFlag(cmd *cobra.Command, url *string, of string) {
	cmd.Flags().StringVar(url, "redis", "", "`URL` of "+of+", such as redis://user:password@127.0.0.1:6379/0; without it, LIMITCTL_REDIS of the environment")
	fromEnvironment(cmd, "redis", redisclient.URLVariable, url)
}

// prefixFlag adds --prefix.
func prefixFlag(cmd *cobra.Command, prefix *string, usage string) {
	cmd.Flags().StringVar(prefix, "prefix", "limit", usage+"; without it, LIMITCTL_PREFIX of the environment")
	fromEnvironment(cmd, "prefix", "LIMITCTL_PREFIX", prefix)
}

// fromEnvironment takes the value of a flag that is not written from a variable. The
// variable is not the default of the flag, since --help would show its password.
func fromEnvironment(cmd *cobra.Command, flag, variable string, value *string) {
	before := cmd.PreRun
	cmd.PreRun = func(cmd *cobra.Command, args []string) {
		if before != nil {
			before(cmd, args)
		}
		if text := os.Getenv(variable); text != "" && !cmd.Flags().Changed(flag) {
			*value = text
		}
	}
}

// dial returns a client, which has not connected yet.
func (c *connection) dial() (redis.UniversalClient, error) {
	if err := redisclient.CheckPrefix("--prefix", c.prefix); err != nil {
		return nil, usageError{err}
	}
	client, err := redisclient.Open(c.url, c.cluster)
	if err != nil {
		return nil, usageError{err}
	}
	return client, nil
}
