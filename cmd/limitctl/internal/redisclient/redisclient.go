// Package redisclient makes clients of the Redis that a command names.
package redisclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"
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
		options.DialTimeout, options.ContextTimeoutEnabled, options.Dialer = dialTimeout, true, dialer(options.TLSConfig)
		options.DialerRetries = 1 // commands are repeated
		return redis.NewClient(options), nil
	}
	options, err := redis.ParseClusterURL(text)
	if err != nil {
		return nil, badURL(text, err)
	}
	options.DialTimeout, options.ContextTimeoutEnabled, options.Dialer = dialTimeout, true, dialer(options.TLSConfig)
	return redis.NewClusterClient(options), nil
}

var errHandshake = errors.New("no answer to the TLS handshake")

// dialer returns nil without TLS. A Redis without TLS waits for the rest of what it takes for a
// command, so a handshake without an answer is an error of its own.
func dialer(config *tls.Config) func(ctx context.Context, network, addr string) (net.Conn, error) {
	if config == nil {
		return nil
	}
	secure := tls.Dialer{NetDialer: &net.Dialer{Timeout: handshakeTimeout}, Config: config}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := secure.DialContext(ctx, network, addr)
		var dial *net.OpError
		if errors.As(err, &dial) && dial.Op == "dial" || ctx.Err() != nil {
			return conn, err
		}
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, io.EOF) {
			err = errHandshake
		}
		return conn, err
	}
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

const (
	dialTimeout      = 3 * time.Second
	handshakeTimeout = 2 * time.Second // with the dial: less, since go-redis gives up then
)

// Explain adds to an error of Redis what to write instead, if the error follows from the
// flags.
func Explain(err error) error {
	var dial *net.OpError
	var slow net.Error
	var diagnosis *core.Diagnosis
	var reply redis.Error
	var certificate *tls.CertificateVerificationError
	var unknown x509.UnknownAuthorityError
	var handshake tls.RecordHeaderError
	switch {
	case err == nil:
	case strings.Contains(err.Error(), "WRONGPASS "):
		return errors.New("the user or the password is wrong: write --redis redis://user:password@host:6379, or set " + URLVariable)
	case strings.Contains(err.Error(), "NOAUTH "):
		return errors.New("a password is missing: write --redis redis://user:password@host:6379, or set " + URLVariable)
	case errors.As(err, &unknown):
		return fmt.Errorf("the certificate of Redis is not trusted: %w: add its authority to those of the system; on Linux, SSL_CERT_FILE names a file of them", unknown)
	case errors.As(err, &certificate):
		return fmt.Errorf("the certificate of Redis is not valid: %w", certificate.Err)
	case errors.As(err, &handshake):
		return errors.New("the server does not speak TLS: check the port, or write redis:// in place of rediss://")
	case errors.Is(err, errHandshake):
		return errors.New("the server does not answer the TLS handshake: check the port, and whether the server speaks TLS")
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		return errors.New("the server has closed the connection: check the port, and whether the server wants TLS (rediss://)")
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
