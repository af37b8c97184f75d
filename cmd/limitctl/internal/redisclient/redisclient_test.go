package redisclient

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
)

// TestErrors checks that an error says what to write, and does not show the password.
func TestErrors(t *testing.T) {
	for _, text := range []string{"", "redis://app:secret@:port", "app:secret@db", "foo", "http://app:secret@db", "redis://app:secret@db/x",
		"redis://app:12/secret@db", "redis://app:/3/secret@db", "redis://app:12?secret@db", "redis://app:12?secret=a@db", "redis://app:12#secret@db", "redis://app:se/secret@db",
		"redis://app:a@b/secret@db", "redis://app:a@b?secret@db", "redis://app:a@b#secret@db", "unix://app:12/secret@/redis.sock", "unix://app:12#secret@/redis.sock"} {
		for _, a := range []Address{{URL: text}, {URL: text, Cluster: true}, {URL: text, Sentinel: "primary"}} {
			_, err := a.Open()
			if a.Cluster && text == "redis://app:secret@db/x" {
				continue // a Cluster has no databases
			}
			require.Error(t, err, text)
			assert.Contains(t, err.Error(), "write --redis ")
			assert.NotContains(t, err.Error(), ": :")
			assert.NotContains(t, err.Error(), "secret")
		}
	}
	for _, text := range []string{"redis://app:p@ss@db/1?client_name=a@b", "unix://app:secret@/a@b.sock", "unix:///a@b.sock"} {
		_, err := (&Address{URL: text}).Open()
		assert.NoError(t, err, text)
	}
	none := filepath.Join(t.TempDir(), "none")
	require.NoError(t, os.WriteFile(none, []byte("nothing"), 0o600))
	for want, a := range map[string]Address{
		"--cluster and --sentinel: write one of them": {URL: "redis://db", Cluster: true, Sentinel: "primary"},
		"write --redis rediss://host:6379":            {URL: "redis://db", CA: none},
		"has no certificate":                          {URL: "rediss://db", CA: none},
		"no such file":                                {URL: "rediss://db", CA: none + "x"},
		"--tls-cert \"\" and --tls-key":               {URL: "rediss://db", Key: none},
	} {
		_, err := a.Open()
		assert.ErrorContains(t, err, want)
	}
}

// TestAddresses connects to servers of each kind, and checks what a command says of those
// that it cannot talk to.
func TestAddresses(t *testing.T) {
	dir := t.TempDir()
	authority(t, dir)
	ca, cert, key := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	socket := filepath.Join(dir, "redis.sock")
	locked := redistest.Launch(t, "--requirepass", "", "--unixsocket", socket)
	require.NoError(t, locked.Client().ConfigSet(t.Context(), "requirepass", "right").Err())
	secure := "localhost:" + withTLS(t, redistest.Launch(t), dir, "no")
	mutual := "localhost:" + withTLS(t, redistest.Launch(t), dir, "yes")
	port := freePort(t)
	cluster := "localhost:" + port
	node := redistest.Launch(t, "--cluster-enabled", "yes", "--tls-cluster", "yes", "--tls-port", port, "--tls-auth-clients", "no",
		"--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", ca)
	require.NoError(t, node.Client().ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
	redistest.Await(t, 10*time.Second, "the slots are served", func() bool { return strings.Contains(node.Client().ClusterInfo(t.Context()).Val(), "cluster_state:ok") })
	watched := redistest.Launch(t)
	require.NoError(t, watched.Client().ConfigSet(t.Context(), "requirepass", "right").Err())
	sentinel := startSentinel(t, dir, "port %s\nrequirepass guard", watched.Addr)
	secureSentinel := startSentinel(t, dir, fmt.Sprintf("port 0\ntls-port %%s\ntls-cert-file %s\ntls-key-file %s\ntls-ca-cert-file %s\ntls-auth-clients no", cert, key, ca), "127.0.0.1:"+secure[len("localhost:"):])
	named := redistest.Launch(t)
	namedPort := withTLS(t, named, dir, "no")
	require.NoError(t, named.Client().Do(t.Context(), "config", "set", "tls-cert-file", filepath.Join(dir, "redis.pem"), "tls-key-file", filepath.Join(dir, "redis-key.pem")).Err())
	ownSentinel := startSentinel(t, dir, fmt.Sprintf("port 0\ntls-port %%s\ntls-cert-file %s\ntls-key-file %s\ntls-ca-cert-file %s\ntls-auth-clients no",
		filepath.Join(dir, "sentinel.pem"), filepath.Join(dir, "sentinel-key.pem"), ca), "127.0.0.1:"+namedPort)
	few := redistest.Launch(t)
	require.NoError(t, few.Client().Do(t.Context(), "ACL", "SETUSER", "look", "on", ">pw", "~limit:*", "+get").Err())

	taken := redistest.Launch(t)
	require.NoError(t, taken.Client().ConfigSet(t.Context(), "maxclients", "1").Err()) // which has the only connection

	closed := "the server has closed the connection: check the port, write rediss:// if the server wants TLS, or raise maxclients if that many are connected"
	login := "write --redis redis://user:password@host:6379, or set LIMITCTL_REDIS"
	logins := `the user or the password of the Sentinel or of Redis is wrong: write --redis "redis://user:password@sentinel:26379?username=…&password=…", those of Redis at its end`
	hosts := "the certificate of Redis or of a Sentinel is for another host: x509: certificate is valid for NAMES: write a name in that of Redis by --tls-server-name, and a host in that of the Sentinel in --redis"
	for _, c := range []struct {
		at   Address
		want string // "" for a connection
	}{
		{at: Address{URL: "redis://:right@" + locked.Addr}},
		{at: Address{URL: "unix://:right@" + socket}},
		{at: Address{URL: "rediss://" + secure, CA: ca}},
		{at: Address{URL: "rediss://127.0.0.1" + strings.TrimPrefix(secure, "localhost"), CA: ca, ServerName: "redis.internal"}},
		{at: Address{URL: "rediss://" + secure + "?skip_verify=true"}},
		{at: Address{URL: "rediss://" + mutual, CA: ca, Cert: cert, Key: key}},
		{at: Address{URL: "redis://" + node.Addr, Cluster: true}},
		{at: Address{URL: "rediss://" + cluster, Cluster: true, CA: ca, ServerName: "localhost"}},
		{at: Address{URL: "redis://:guard@" + sentinel + "?password=right", Sentinel: "primary"}},
		{at: Address{URL: "rediss://" + secureSentinel, Sentinel: "primary", CA: ca, ServerName: "redis.internal"}},
		{at: Address{URL: "redis://:guard@127.0.0.1:1?addr=127.0.0.1:2&addr=" + sentinel + "&password=right", Sentinel: "primary"}},
		{at: Address{URL: "rediss://" + ownSentinel, Sentinel: "primary", CA: ca, ServerName: "redis.internal"}},

		{Address{URL: "redis://" + locked.Addr}, "a password is missing: " + login},
		{Address{URL: "redis://:wrong@" + locked.Addr}, "the user or the password is wrong: " + login},
		{Address{URL: "unix://" + socket}, "a password is missing: " + login},
		{Address{URL: "unix://" + socket + "x"}, "Redis " + socket + "x cannot be reached: no such file or directory: check --redis, and whether Redis runs there"},
		{Address{URL: "rediss://:right@" + locked.Addr}, "the server does not answer the TLS handshake: check the port, or write redis:// in place of rediss://"},
		{Address{URL: "redis://" + secure}, closed},
		{Address{URL: "redis://" + taken.Addr}, closed},
		{Address{URL: "rediss://" + secure}, "the certificate of Redis is not trusted: x509: certificate signed by unknown authority: name the file of its authority by --tls-ca"},
		{Address{URL: "rediss://" + secure, CA: ca, ServerName: "db"}, "the certificate of Redis is for another host: x509: certificate is valid for redis.internal, localhost, not db: write a name that it has by --tls-server-name"},
		{Address{URL: "rediss://" + mutual, CA: ca}, "the server refuses the TLS connection: tls: certificate required: name the certificate of a client by --tls-cert and --tls-key"},
		{Address{URL: "redis://127.0.0.1:1"}, "Redis 127.0.0.1:1 cannot be reached: connection refused: check --redis, and whether Redis runs there"},
		{Address{URL: "redis://no..host"}, "there is no host no..host: check --redis"}, // no server is asked for it,
		{Address{URL: "rediss://" + ownSentinel, Sentinel: "primary", CA: ca}, strings.Replace(hosts, "NAMES", "redis.internal, not localhost", 1)},
		{Address{URL: "rediss://127.0.0.1" + strings.TrimPrefix(ownSentinel, "localhost"), Sentinel: "primary", CA: ca, ServerName: "redis.internal"}, strings.Replace(hosts, "NAMES", "localhost, not redis.internal", 1)},
		{Address{URL: "redis://127.0.0.1:1", Sentinel: "primary"}, `no Sentinel can be reached: dial tcp 127.0.0.1:1: connect: connection refused: check --redis, or name more of them: --redis "redis://sentinel-1:26379?addr=sentinel-2:26379"`},
		{Address{URL: "redis://:guard@127.0.0.1:1?addr=" + sentinel, Sentinel: "other"}, "the Sentinel knows no primary of that name: write the name of its configuration by --sentinel"},
		{Address{URL: "redis://:guard@" + sentinel, Sentinel: "primary"}, logins},
		{Address{URL: "redis://" + sentinel + "?password=right", Sentinel: "primary"}, logins},
		{Address{URL: "redis://:guard@" + sentinel + "?password=right", Sentinel: "other"}, "the Sentinel knows no primary of that name: write the name of its configuration by --sentinel"},
		{Address{URL: "redis://:right@" + locked.Addr, Sentinel: "primary"}, "the server is no Sentinel: leave out --sentinel, or write the port of the Sentinel"},
		{Address{URL: "redis://:right@" + locked.Addr, Cluster: true}, "ERR This instance has cluster support disabled: the Redis is no Cluster: leave out --cluster"},
		{Address{URL: "redis://look:pw@" + few.Addr}, "NOPERM this user has no permissions to run the 'ping' command: as an administrator of Redis, run GRANT"},
	} {
		t.Run(strings.ReplaceAll(c.at.URL, "/", "|"), func(t *testing.T) {
			t.Parallel() // some try for seconds
			client := must.Get(c.at.Open())(t)
			defer client.Close()
			if single, ok := client.(*redis.Client); ok {
				single.Options().MaxRetries = 0 // 3 s each
			}
			err := Explain(client.Ping(t.Context()).Err(), "GRANT", c.at.Sentinel != "")
			if c.want != "" {
				assert.EqualError(t, err, c.want)
				return
			}
			require.NoError(t, err)
			o := must.Get(c.at.Server(t.Context()))(t)
			single := redis.NewClient(o)
			defer single.Close()
			assert.NoError(t, single.Ping(t.Context()).Err())
		})
	}
}

// TestLongScriptWithoutPassword sends a script that is longer than Redis reads of a stranger.
func TestLongScriptWithoutPassword(t *testing.T) {
	locked := redistest.Launch(t, "--requirepass", "")
	require.NoError(t, locked.Client().ConfigSet(t.Context(), "requirepass", "right").Err())
	client, err := (&Address{URL: "redis://" + locked.Addr}).Open()
	require.NoError(t, err)
	defer client.Close()
	err = client.Eval(t.Context(), "return 1 --"+strings.Repeat("x", 1<<15), nil).Err()
	assert.ErrorContains(t, Explain(err, "", false), "a password is missing")
}

// authority writes the certificate of an authority, and three that it has signed, with their keys:
// cert.pem for redis.internal and localhost, and one for each of them.
func authority(t *testing.T, dir string) {
	write := func(name, kind string, data []byte) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}), 0o600))
	}
	root := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	rootKey := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	data := must.Get(x509.CreateCertificate(rand.Reader, root, root, &rootKey.PublicKey, rootKey))(t)
	write("ca.pem", "CERTIFICATE", data)
	for i, leaf := range []struct {
		name, key string
		hosts     []string
	}{{"cert.pem", "key.pem", []string{"redis.internal", "localhost"}}, {"sentinel.pem", "sentinel-key.pem", []string{"localhost"}}, {"redis.pem", "redis-key.pem", []string{"redis.internal"}}} {
		key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
		certificate := &x509.Certificate{SerialNumber: big.NewInt(int64(i) + 2), NotAfter: time.Now().Add(time.Hour), DNSNames: leaf.hosts}
		data = must.Get(x509.CreateCertificate(rand.Reader, certificate, root, &key.PublicKey, rootKey))(t)
		write(leaf.name, "CERTIFICATE", data)
		data = must.Get(x509.MarshalPKCS8PrivateKey(key))(t)
		write(leaf.key, "PRIVATE KEY", data)
	}
}

// withTLS has a server speak TLS too, and returns the port for that.
func withTLS(t *testing.T, server *redistest.Server, dir, clients string) (port string) {
	t.Helper()
	var err error
	for range 5 { // another process may take the port in between
		port = freePort(t)
		err = server.Client().Do(t.Context(), "config", "set", "tls-auth-clients", clients, "tls-cert-file", filepath.Join(dir, "cert.pem"),
			"tls-key-file", filepath.Join(dir, "key.pem"), "tls-ca-cert-file", filepath.Join(dir, "ca.pem"), "tls-port", port).Err()
		if err == nil {
			conn, problem := net.Dial("tcp", "localhost:"+port)
			if err = problem; err == nil {
				conn.Close()
				return port
			}
		}
	}
	t.Skipf("redis-server has no TLS: %v", err)
	return ""
}

func freePort(t *testing.T) string {
	t.Helper()
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer listener.Close()
	return strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
}

// startSentinel starts a Sentinel of a primary, and returns its address.
func startSentinel(t *testing.T, dir, config, primary string) string {
	t.Helper()
	port := freePort(t)
	path := filepath.Join(dir, port+".conf")
	text := fmt.Sprintf(config, port) + "\nbind 127.0.0.1\nsentinel monitor primary " + strings.Replace(primary, ":", " ", 1) + " 1\n"
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	process := exec.Command("redis-server", path, "--sentinel")
	require.NoError(t, process.Start())
	t.Cleanup(func() {
		process.Process.Kill()
		process.Wait()
	})
	redistest.Await(t, 10*time.Second, "a Sentinel that listens", func() bool {
		conn, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	return "localhost:" + port
}

// A server that wants a certificate can reset the connection before its reason is read.
func TestResetBeforeTheAlert(t *testing.T) {
	dir := t.TempDir()
	authority(t, dir)
	pair := must.Get(tls.LoadX509KeyPair(filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")))(t)
	listener := must.Get(net.Listen("tcp", "localhost:0"))(t)
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			err = tls.Server(mute{conn}, &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAnyClientCert}).Handshake()
			assert.Error(t, err)
			conn.(*net.TCPConn).SetLinger(0)
			conn.Close()
		}
	}()
	a := Address{URL: "rediss://" + listener.Addr().String(), CA: filepath.Join(dir, "ca.pem"), ServerName: "localhost"}
	client := must.Get(a.Open())(t)
	defer client.Close()
	assert.EqualError(t, Explain(client.Ping(t.Context()).Err(), "", false),
		"the server refuses the TLS connection: tls: certificate required: name the certificate of a client by --tls-cert and --tls-key")
}

// mute is a connection that sends no alert of TLS 1.3: after the handshake of a server,
// alerts are 24 bytes.
type mute struct{ net.Conn }

func (c mute) Write(p []byte) (int, error) {
	if len(p) == 24 {
		return len(p), nil
	}
	return c.Conn.Write(p)
}
