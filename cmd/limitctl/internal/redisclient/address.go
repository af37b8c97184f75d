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
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"
)

// URLVariable is the variable of the environment with the URL of the Redis of commands
// without --redis. Other users of the machine see flags, and not variables.
const URLVariable = "LIMITCTL_REDIS"

// An Address says how to reach the Redis of programs.
type Address struct {
	URL      string // redis://, rediss:// for TLS, or unix://
	Cluster  bool   // the URL is a node of a Cluster
	Sentinel string // the name of the primary, if the URL is a Sentinel

	CA, Cert, Key, ServerName string // of TLS: files, and the name in the certificate
}

// Flags adds the flags of an address, except --redis.
func (a *Address) Flags(f *pflag.FlagSet) {
	f.BoolVar(&a.Cluster, "cluster", false, "the Redis is a Cluster, and the URL is one of its nodes")
	f.StringVar(&a.Sentinel, "sentinel", "", "the URL is a Sentinel, and this is the `name` of the primary; ?username=…&password=… of the URL are those of Redis")
	f.StringVar(&a.CA, "tls-ca", "", "a PEM `file` of the authorities that sign the certificate of Redis, instead of those of the system")
	f.StringVar(&a.Cert, "tls-cert", "", "a PEM `file` of the certificate that Redis asks clients for")
	f.StringVar(&a.Key, "tls-key", "", "a PEM `file` of the key of --tls-cert")
	f.StringVar(&a.ServerName, "tls-server-name", "", "the `name` in the certificate of Redis, if it is not the host of the URL; a Sentinel may have its own host in place of it")
}

// Open returns a client, which has not connected yet. The error shows no password.
func (a *Address) Open() (redis.UniversalClient, error) {
	switch {
	case a.Cluster && a.Sentinel != "":
		return nil, errors.New("--cluster and --sentinel: write one of them")
	case a.Cluster:
		o, err := parse(a.URL, redis.ParseClusterURL)
		if err != nil {
			return nil, err
		}
		o.DialTimeout, o.ContextTimeoutEnabled = dialTimeout, true
		if o.Dialer, err = a.dialer(o.TLSConfig); err != nil {
			return nil, err
		}
		return redis.NewClusterClient(o), nil
	case a.Sentinel != "":
		o, err := a.failover()
		if err != nil {
			return nil, err
		}
		return redis.NewFailoverClient(o), nil
	}
	o, err := a.Server(context.Background())
	if err != nil {
		return nil, err
	}
	return redis.NewClient(o), nil
}

// Server returns the options of a client of one server: that of the URL, or the primary
// that its Sentinel names.
func (a *Address) Server(ctx context.Context) (o *redis.Options, err error) {
	switch {
	case a.Sentinel != "":
		return a.primary(ctx)
	case a.Cluster:
		node, err := parse(a.URL, redis.ParseClusterURL)
		if err != nil {
			return nil, err
		}
		o = &redis.Options{Addr: node.Addrs[0], Username: node.Username, Password: node.Password, TLSConfig: node.TLSConfig}
	default:
		if o, err = parse(a.URL, redis.ParseURL); err != nil {
			return nil, err
		}
	}
	o.DialTimeout, o.ContextTimeoutEnabled = dialTimeout, true
	o.DialerRetries = 1 // commands are repeated
	o.Dialer, err = a.dialer(o.TLSConfig)
	return o, err
}

// failover returns the options of a client that asks Sentinels.
func (a *Address) failover() (*redis.FailoverOptions, error) {
	o, err := parse(a.URL, redis.ParseFailoverURL)
	if err != nil {
		return nil, err
	}
	o.MasterName, o.DialTimeout, o.ContextTimeoutEnabled, o.DialerRetries = a.Sentinel, dialTimeout, true, 1
	o.Dialer, err = a.dialer(o.TLSConfig)
	return o, err
}

// primary asks the Sentinels one after the other for the options of the primary.
func (a *Address) primary(ctx context.Context) (*redis.Options, error) {
	o, err := a.failover()
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, addr := range o.SentinelAddrs {
		sentinel := redis.NewSentinelClient(&redis.Options{Addr: addr, Username: o.SentinelUsername, Password: o.SentinelPassword,
			DialTimeout: dialTimeout, DialerRetries: 1, MaxRetries: -1, ContextTimeoutEnabled: true, Dialer: o.Dialer, TLSConfig: o.TLSConfig})
		at, err := sentinel.GetMasterAddrByName(ctx, a.Sentinel).Result()
		sentinel.Close()
		if err == nil {
			return &redis.Options{Addr: net.JoinHostPort(at[0], at[1]), Username: o.Username, Password: o.Password, DB: o.DB, TLSConfig: o.TLSConfig, Dialer: o.Dialer}, nil
		}
		errs = append(errs, err)
	}
	return nil, Explain(fmt.Errorf("%s%w", allSentinels, errors.Join(errs...)), "", true)
}

// dialer completes the configuration of TLS, and returns nil without one. A Redis without TLS
// waits for the rest of what it takes for a command, so a handshake without an answer is an
// error of its own.
func (a *Address) dialer(config *tls.Config) (func(ctx context.Context, network, addr string) (net.Conn, error), error) {
	if config == nil {
		if a.CA+a.Cert+a.Key+a.ServerName != "" {
			return nil, errors.New("--tls-ca, --tls-cert, --tls-key and --tls-server-name are about TLS: write --redis rediss://host:6379")
		}
		return nil, nil
	}
	if a.CA != "" {
		text, err := os.ReadFile(a.CA)
		if err != nil {
			return nil, fmt.Errorf("--tls-ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("--tls-ca: %s has no certificate: write a file with BEGIN CERTIFICATE", a.CA)
		}
	}
	if a.Cert+a.Key != "" {
		pair, err := tls.LoadX509KeyPair(a.Cert, a.Key)
		if err != nil {
			return nil, fmt.Errorf("--tls-cert %q and --tls-key %q: %w", a.Cert, a.Key, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	if a.ServerName != "" {
		config.ServerName = a.ServerName
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		secure, asked := tls.Dialer{NetDialer: &net.Dialer{Timeout: handshakeTimeout}, Config: config.Clone()}, false
		if len(config.Certificates) == 0 {
			secure.Config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				asked = true
				return new(tls.Certificate), nil
			}
		}
		conn, err := secure.DialContext(ctx, network, addr)
		if other := (x509.HostnameError{}); a.Sentinel != "" && errors.As(err, &other) {
			// Sentinels and the servers that they name have certificates of their own.
			secure.Config.ServerName, _, _ = net.SplitHostPort(addr)
			if own, problem := secure.DialContext(ctx, network, addr); problem == nil {
				conn, err = own, nil
			}
		}
		var dial *net.OpError
		switch {
		case err == nil && asked:
			return uncertified{conn}, nil
		case errors.As(err, &dial) && dial.Op == "dial" || ctx.Err() != nil:
		case errors.Is(err, context.DeadlineExceeded), errors.Is(err, io.EOF):
			err = errHandshake
		}
		return conn, err
	}, nil
}

// uncertified is a connection to a server that asked for a certificate and got none. If the
// server insists, TLS 1.3 has it say so after the handshake, and the reset of the connection
// can overtake what it says.
type uncertified struct{ net.Conn }

func (c uncertified) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	return n, c.explained(err)
}

func (c uncertified) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	return n, c.explained(err)
}

func (uncertified) explained(err error) error {
	if closed(err) {
		return errCertificate
	}
	return err
}

// parse reads a URL, and keeps the password out of the error: an error of package url contains the
// whole URL. A password with a /, ? or # ends there, and the rest is read as a path, options or a
// fragment with an @. Only the path of a socket and the values of options may have one.
func parse[O any](text string, read func(string) (O, error)) (O, error) {
	const want = "write --redis as redis://user:password@host:6379/0, rediss:// for TLS, or unix:///path/to/redis.sock"
	o, err := read(text)
	whole, problem := url.Parse(text)
	switch {
	case text == "":
		return o, errors.New("name the Redis of the programs: write --redis redis://127.0.0.1:6379, or set " + URLVariable)
	case problem != nil, strings.Contains(whole.Fragment, "@"), strings.Contains(whole.Path, "@") && (whole.Scheme != "unix" || whole.Host != ""),
		err != nil && strings.Contains(text, "@") && (whole.User == nil || strings.Count(text, "@") > 1):
		return o, errors.New("--redis is not a URL: " + want + "; in a password, write %2F for /, %3F for ? and %23 for #")
	case err == nil:
		return o, nil
	}
	// Of a URL without a scheme, go-redis shows the empty scheme.
	return o, fmt.Errorf("--redis: %s: %s", strings.TrimRight(err.Error(), ": "), want)
}

const (
	dialTimeout      = 3 * time.Second
	handshakeTimeout = 2 * time.Second // with the dial: less, since go-redis gives up then
)
