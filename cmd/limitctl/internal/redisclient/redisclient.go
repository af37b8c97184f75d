// Package redisclient makes clients of the Redis that a command names.
package redisclient

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/routelimit/limit/internal/redisfacts"
)

// CheckPrefix returns an error for a prefix of keys that the library does not take.
func CheckPrefix(flag, prefix string) error {
	if strings.ContainsAny(prefix, "{}") {
		return fmt.Errorf("%s %q: braces mark the slot of a Cluster: write it without them", flag, prefix)
	}
	return nil
}

// go-redis returns as errors what it logs. Its logger is a global variable that its goroutines read
// without a lock, so it is turned off before there are any.
func init() { logging.Disable() }

var (
	errHandshake   = errors.New("no answer to the TLS handshake")
	errCertificate = errors.New("tls: certificate required")
)

// ErrNoSentinel is wrapped by the error of [Address.Server] if no Sentinel can be reached.
var ErrNoSentinel = errors.New("no Sentinel can be reached")

// allSentinels begins the error of go-redis then.
const allSentinels = "redis: all sentinels specified in configuration are unreachable: "

// closed tells whether an error says that the server has closed the connection.
func closed(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// Explain adds to an error of Redis what to write instead, if the error follows from the
// flags. grant is the command that gives a user the rights that it needs, and sentinel says
// that the URL is a Sentinel.
func Explain(err error, grant string, sentinel bool) error {
	var dial *net.OpError
	var slow net.Error
	var reply redis.Error
	var certificate *tls.CertificateVerificationError
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var handshake tls.RecordHeaderError
	if err == nil {
		return nil
	}
	const refused = "the server refuses the TLS connection: %w: name the certificate of a client by --tls-cert and --tls-key"
	text := err.Error()
	switch login := "write --redis redis://user:password@host:6379, or set " + URLVariable; {
	case sentinel && (strings.Contains(text, "WRONGPASS ") || strings.Contains(text, "NOAUTH ") || strings.Contains(text, "AUTH <password> called")):
		return errors.New("the user or the password of the Sentinel or of Redis is wrong: write --redis \"redis://user:password@sentinel:26379?username=…&password=…\", those of Redis at its end")
	case strings.Contains(text, "WRONGPASS "):
		return errors.New("the user or the password is wrong: " + login)
	case strings.Contains(text, "NOAUTH "), strings.Contains(text, "unauthenticated"): // the reply to a long script
		return errors.New("a password is missing: " + login)
	case strings.Contains(text, "AUTH <password> called"):
		return errors.New("the Redis has no password: write --redis without one")
	case errors.As(err, &unknown):
		return fmt.Errorf("the certificate of Redis is not trusted: %w: name the file of its authority by --tls-ca", unknown)
	case errors.As(err, &host) && sentinel:
		return fmt.Errorf("the certificate of Redis or of a Sentinel is for another host: %w: write a name in that of Redis by --tls-server-name, and a host in that of the Sentinel in --redis", host)
	case errors.As(err, &host):
		return fmt.Errorf("the certificate of Redis is for another host: %w: write a name that it has by --tls-server-name", host)
	case errors.As(err, &certificate):
		return fmt.Errorf("the certificate of Redis is not valid: %w", certificate.Err)
	case errors.Is(err, errCertificate):
		return fmt.Errorf(refused, errCertificate)
	case errors.As(err, &dial) && dial.Op == "remote error": // an alert of TLS
		return fmt.Errorf(refused, dial.Err)
	case errors.As(err, &handshake):
		return errors.New("the server does not speak TLS: check the port, or write redis:// in place of rediss://")
	case errors.Is(err, errHandshake):
		return errors.New("the server does not answer the TLS handshake: check the port, or write redis:// in place of rediss://")
	case closed(err):
		return errors.New("the server has closed the connection: check the port, write rediss:// if the server wants TLS, or raise maxclients if that many are connected")
	case sentinel && errors.Is(err, redis.Nil):
		return errors.New("the Sentinel knows no primary of that name: write the name of its configuration by --sentinel")
	case sentinel && strings.Contains(text, "unknown command"):
		return errors.New("the server is no Sentinel: leave out --sentinel, or write the port of the Sentinel")
	case sentinel && strings.Contains(text, allSentinels):
		_, list, _ := strings.Cut(text, allSentinels)
		return fmt.Errorf("%w: %s: check --redis, or name more of them: --redis \"redis://sentinel-1:26379?addr=sentinel-2:26379\"", ErrNoSentinel, strings.ReplaceAll(list, "\n", ", "))
	case errors.As(err, &dial) && dial.Op == "dial":
		return unreachable(dial)
	case errors.As(err, &slow) && slow.Timeout():
		return fmt.Errorf("no answer from Redis: %w", slow)
	case strings.Contains(text, "MOVED "), strings.Contains(text, "CROSSSLOT"):
		return fmt.Errorf("%w: the Redis is a Cluster: write --cluster", err)
	case strings.Contains(text, "cluster support disabled"):
		return fmt.Errorf("%w: the Redis is no Cluster: leave out --cluster", err)
	case strings.Contains(text, "unknown command"):
		return fmt.Errorf("%w: if the server is a Sentinel, name the primary by --sentinel", err)
	case redisfacts.NoRight(text) && errors.As(err, &reply): // others may name the rights of a limiter
		return fmt.Errorf("%w: as an administrator of Redis, run %s", reply, grant)
	}
	return err
}

// unreachable returns the error of a server that was not connected to.
func unreachable(dial *net.OpError) error {
	cause := dial.Err
	var name *net.DNSError
	if errors.As(cause, &name) && name.IsNotFound {
		return fmt.Errorf("there is no host %s: check --redis", name.Name)
	}
	if call := (*os.SyscallError)(nil); errors.As(cause, &call) {
		cause = call.Err
	}
	server := "Redis"
	if dial.Addr != nil {
		server += " " + dial.Addr.String()
	}
	return fmt.Errorf("%s cannot be reached: %w: check --redis, and whether Redis runs there", server, cause)
}
