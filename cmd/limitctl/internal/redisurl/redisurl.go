// Package redisurl reads the URLs of --redis, and keeps their passwords out of errors.
package redisurl

import (
	"errors"
	"fmt"
	"net/url"

	"github.com/redis/go-redis/v9"
)

// Parse reads the URL of a server.
func Parse(text string) (*redis.Options, error) {
	o, err := redis.ParseURL(text)
	return o, explain(err)
}

// ParseCluster reads the URL of a node of a Cluster.
func ParseCluster(text string) (*redis.ClusterOptions, error) {
	o, err := redis.ParseClusterURL(text)
	return o, explain(err)
}

// explain leaves out an error of package url, which contains the URL with its password.
func explain(err error) error {
	const want = "write --redis as redis://user:password@host:6379/0, or rediss:// for TLS"
	var whole *url.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &whole):
		return errors.New("--redis is not a URL: " + want)
	}
	return fmt.Errorf("--redis: %w: %s", err, want)
}
