// Package redisclient makes clients of the Redis that a command names.
package redisclient

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/notice"
	"github.com/routelimit/limit/internal/redisfacts"
)

// Parse reads the URL of a server, or of a node of a Cluster. Its error shows no
// password.
func Parse(text string, cluster bool) (*redis.Options, error) {
	if !cluster {
		options, err := redis.ParseURL(text)
		if err != nil {
			return nil, badURL(text, err)
		}
		return options, nil
	}
	options, err := redis.ParseClusterURL(text)
	if err != nil {
		return nil, badURL(text, err)
	}
	return &redis.Options{Addr: options.Addrs[0], Username: options.Username, Password: options.Password, TLSConfig: options.TLSConfig}, nil
}

// badURL keeps the password out of the error: an error of package url contains the
// whole URL.
func badURL(text string, err error) error {
	const want = "write --redis as redis://user:password@host:6379/0, or rediss:// for TLS"
	if text == "" {
		return errors.New("name the Redis of the programs: write --redis redis://127.0.0.1:6379, or set " + URLVariable)
	}
	var whole *url.Error
	if errors.As(err, &whole) {
		return errors.New("--redis is not a URL: " + want)
	}
	// Of a URL without a scheme, go-redis shows the empty scheme.
	return fmt.Errorf("--redis: %s: %s", strings.TrimRight(err.Error(), ": "), want)
}

// URLVariable is the variable of the environment with the URL of the Redis of commands
// without --redis. Other users of the machine see flags, and not variables.
const URLVariable = "LIMITCTL_REDIS"

// CheckPrefix returns an error for a prefix of keys that the library does not take.
func CheckPrefix(flag, prefix string) error {
	if strings.ContainsAny(prefix, "{}") {
		return fmt.Errorf("%s %q: braces mark the slot of a Cluster: write it without them", flag, prefix)
	}
	return nil
}

// Quiet ends the log of go-redis, which also returns what it logs as errors. It sets a
// global variable, and does so once.
var Quiet = sync.OnceFunc(logging.Disable)

// Open returns a client. It does not connect yet.
func Open(text string, cluster bool) (redis.UniversalClient, error) {
	Quiet()
	if !cluster {
		options, err := Parse(text, false)
		if err != nil {
			return nil, err
		}
		options.DialTimeout, options.ContextTimeoutEnabled = dialTimeout, true
		return redis.NewClient(options), nil
	}
	options, err := redis.ParseClusterURL(text)
	if err != nil {
		return nil, badURL(text, err)
	}
	options.DialTimeout, options.ContextTimeoutEnabled = dialTimeout, true
	return redis.NewClusterClient(options), nil
}

// unreachable returns the error of a server that was not connected to.
func unreachable(dial *net.OpError) error {
	cause := dial.Err
	if call := (*os.SyscallError)(nil); errors.As(cause, &call) {
		cause = call.Err
	}
	server := "Redis"
	if dial.Addr != nil {
		server += " " + dial.Addr.String()
	}
	return fmt.Errorf("%s cannot be reached: %w", server, cause)
}

const dialTimeout = 3 * time.Second

// Explain adds to an error of Redis what to write instead, if the error follows from the
// flags.
func Explain(err error) error {
	var dial *net.OpError
	var slow net.Error
	var diagnosis *core.Diagnosis
	var reply redis.Error
	switch {
	case err == nil:
	case errors.As(err, &dial) && dial.Op == "dial":
		return unreachable(dial)
	case errors.As(err, &slow) && slow.Timeout():
		return fmt.Errorf("no answer from Redis: %w", slow)
	case redis.HasErrorPrefix(err, "MOVED"), strings.Contains(err.Error(), "MOVED "), strings.Contains(err.Error(), "CROSSSLOT"):
		return fmt.Errorf("%w: the Redis is a Cluster: write --cluster", err)
	case strings.Contains(err.Error(), "cluster support disabled"):
		return fmt.Errorf("%w: the Redis is no Cluster: leave out --cluster", err)
	case errors.As(err, &diagnosis) && diagnosis.Code == notice.NoPermission && errors.As(err, &reply):
		return noRight(reply) // the rights that the diagnosis names are those of a limiter
	case redisfacts.NoRight(err.Error()) && !strings.Contains(err.Error(), "ACL SETUSER"): // of package control
		return noRight(err)
	}
	return err
}

func noRight(err error) error {
	return fmt.Errorf("%w: the user of --redis lacks a right: docs/operating.md#acl-rights has the command that grants it", err)
}
