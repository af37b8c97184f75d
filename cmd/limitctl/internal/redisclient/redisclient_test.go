package redisclient

import (
	"crypto/x509"
	"encoding/pem"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/internal/redistest"
)

func TestParse(t *testing.T) {
	o, err := Parse("rediss://app:secret@db:6380/2", false)
	require.NoError(t, err)
	assert.Equal(t, []any{"db:6380", "app", "secret", 2, true}, []any{o.Addr, o.Username, o.Password, o.DB, o.TLSConfig != nil})
	o, err = Parse("redis://db:7000?addr=db:7001", true)
	require.NoError(t, err)
	assert.Equal(t, "db:7000", o.Addr)
}

// TestErrors checks that an error says what to write, and does not show the password.
func TestErrors(t *testing.T) {
	for _, text := range []string{"", "redis://app:secret@:port", "app:secret@db", "foo", "http://app:secret@db", "redis://app:secret@db/x"} {
		for _, cluster := range []bool{false, true} {
			for _, open := range []func() error{
				func() error { _, err := Parse(text, cluster); return err },
				func() error { _, err := Open(text, cluster); return err },
			} {
				err := open()
				if cluster && text == "redis://app:secret@db/x" {
					continue // a Cluster has no databases
				}
				require.Error(t, err, text)
				assert.Contains(t, err.Error(), "write --redis ")
				assert.NotContains(t, err.Error(), ": :")
				assert.NotContains(t, err.Error(), "secret")
			}
		}
	}
}

// TestExplain checks what a command says of a Redis that it cannot talk to.
func TestExplain(t *testing.T) {
	server := redistest.Launch(t)
	require.NoError(t, server.Client().ConfigSet(t.Context(), "requirepass", "right").Err())
	secure := withTLS(t, redistest.Launch(t))
	for url, want := range map[string]string{
		"redis://" + server.Addr:                   "a password is missing: write --redis redis://user:password@host:6379, or set LIMITCTL_REDIS",
		"redis://:wrong@" + server.Addr:            "the user or the password is wrong: write --redis redis://user:password@host:6379, or set LIMITCTL_REDIS",
		"rediss://:right@" + server.Addr:           "the server does not answer the TLS handshake: check the port, and whether the server speaks TLS",
		"redis://" + secure:                        "the server has closed the connection: check the port, and whether the server wants TLS (rediss://)",
		"rediss://" + secure:                       "the certificate of Redis is not trusted: x509: certificate signed by unknown authority: add its authority to those of the system; on Linux, SSL_CERT_FILE names a file of them",
		"rediss://" + secure + "?skip_verify=true": "",
		"redis://:right@" + server.Addr:            "",
		"redis://127.0.0.1:1":                      "Redis 127.0.0.1:1 cannot be reached: connection refused",
	} {
		client, err := Open(url, false)
		require.NoError(t, err)
		client.(*redis.Client).Options().MaxRetries = 0 // 3 s each
		err = Explain(client.Ping(t.Context()).Err())
		if want == "" {
			assert.NoError(t, err, url)
		} else {
			assert.EqualError(t, err, want, url)
		}
		client.Close()
	}
}

// withTLS has a server speak TLS too, and returns the address for that.
func withTLS(t *testing.T, server *redistest.Server) string {
	t.Helper()
	own := httptest.NewTLSServer(nil)
	defer own.Close()
	certificate := own.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := listener.Addr().(*net.TCPAddr)
	require.NoError(t, listener.Close())
	dir, client := t.TempDir(), server.Client()
	set := []string{"tls-auth-clients", "no"}
	for name, block := range map[string]*pem.Block{
		"tls-cert-file": {Type: "CERTIFICATE", Bytes: certificate.Certificate[0]},
		"tls-key-file":  {Type: "PRIVATE KEY", Bytes: key},
	} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(block), 0o600))
		set = append(set, name, path)
	}
	set = append(set, "tls-ca-cert-file", filepath.Join(dir, "tls-cert-file"), "tls-port", strconv.Itoa(addr.Port))
	args := []any{"config", "set"}
	for _, word := range set {
		args = append(args, word)
	}
	if err := client.Do(t.Context(), args...).Err(); err != nil {
		t.Skipf("redis-server has no TLS: %v", err)
	}
	return addr.String()
}
