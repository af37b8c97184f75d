package redistest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Sentinel is a primary, two replicas and three sentinels that put a replica
// in the primary's place half a second after it has died.
type Sentinel struct {
	Name  string   // of the primary, for redis.FailoverOptions
	Addrs []string // of the sentinels
	Nodes []*Server
}

// StartSentinel starts a Sentinel. It skips the test where there is no
// redis-server.
func StartSentinel(t testing.TB) *Sentinel {
	t.Helper()
	s := &Sentinel{Name: "primary"}
	s.Nodes = append(s.Nodes, Launch(t, "--repl-diskless-sync-delay", "0"))
	for range 2 {
		s.Nodes = append(s.Nodes, Launch(t, "--repl-diskless-sync-delay", "0", "--replicaof", spaced(s.Nodes[0].Addr)))
	}
	s.AwaitReplicas(t)
	for range 3 {
		s.Addrs = append(s.Addrs, s.watch(t))
	}
	for _, addr := range s.Addrs {
		s.Await(t, addr, "the sentinels know each other and the replicas", func(sentinel *redis.SentinelClient) bool {
			others, err := sentinel.Sentinels(t.Context(), s.Name).Result()
			replicas, problem := sentinel.Replicas(t.Context(), s.Name).Result()
			return err == nil && problem == nil && len(others) == 2 && len(replicas) == 2
		})
	}
	return s
}

func spaced(addr string) string { return strings.Replace(addr, ":", " ", 1) }

// watch starts one of the sentinels.
func (s *Sentinel) watch(t testing.TB) string {
	t.Helper()
	port, dir := freePort(), t.TempDir()
	addr := net.JoinHostPort("127.0.0.1", port)
	config := filepath.Join(dir, "sentinel.conf")
	text := fmt.Sprintf(`port %s
bind 127.0.0.1
dir %s
sentinel monitor %s %s 2
sentinel down-after-milliseconds %[3]s 500
sentinel failover-timeout %[3]s 1000
`, port, dir, s.Name, spaced(s.Nodes[0].Addr))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	sentinel := &Server{t: t, Addr: addr, args: []string{config, "--sentinel"}}
	if err := sentinel.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sentinel.Kill)
	return addr
}

// Primary returns the node that is the primary, or nil while there is none or
// more than one.
func (s *Sentinel) Primary(t testing.TB) *Server {
	var primary *Server
	for _, node := range s.Nodes {
		if node.process == nil || !node.leads(t) {
			continue
		}
		if primary != nil {
			return nil
		}
		primary = node
	}
	return primary
}

// AwaitReplicas waits until there is a primary with two replicas in sync, and
// returns it. On a loaded machine it need not be the last one known.
func (s *Sentinel) AwaitReplicas(t testing.TB) (primary *Server) {
	t.Helper()
	Await(t, time.Minute, "a primary with two replicas in step", func() bool {
		if primary = s.Primary(t); primary == nil {
			return false
		}
		return strings.Count(primary.replication(t), "state=online") == 2
	})
	return primary
}

// Await polls one of the sentinels.
func (s *Sentinel) Await(t testing.TB, addr, what string, condition func(*redis.SentinelClient) bool) {
	t.Helper()
	client := redis.NewSentinelClient(&redis.Options{Addr: addr})
	defer client.Close()
	Await(t, time.Minute, what, func() bool { return condition(client) })
}
