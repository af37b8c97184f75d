package main

import (
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
	cmd.Flags().StringVar(&c.url, "redis", "", "`URL` of the Redis of the programs, such as redis://user:password@127.0.0.1:6379/0")
	cmd.Flags().BoolVar(&c.cluster, "cluster", false, "the Redis is a Cluster, and the URL is one of its nodes")
	cmd.Flags().StringVar(&c.prefix, "prefix", "limit", prefix)
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
