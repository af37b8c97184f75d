package redistest

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Cluster starts a Redis Cluster of three processes, without replicas, and returns a client of it.
func Cluster(t testing.TB) *redis.ClusterClient {
	t.Helper()
	return startCluster(t, 2*time.Second, 0).Client(t)
}

// Nodes are the processes of a Redis Cluster.
type Nodes []*Server

// StartCluster starts a Redis Cluster of six processes, three of them replicas,
// which take over some time after their primary has died. It skips the test
// where there is no redis-server or no redis-cli.
func StartCluster(t testing.TB, nodeTimeout time.Duration) Nodes {
	t.Helper()
	return startCluster(t, nodeTimeout, 1)
}

// startCluster starts a cluster of three primaries with so many replicas each.
func startCluster(t testing.TB, nodeTimeout time.Duration, replicas int) Nodes {
	t.Helper()
	if _, err := exec.LookPath("redis-cli"); err != nil {
		t.Skip(err)
	}
	var nodes Nodes
	for range 3 + 3*replicas {
		nodes = append(nodes, Launch(t, "--cluster-enabled", "yes", "--cluster-node-timeout", fmt.Sprint(nodeTimeout.Milliseconds()), "--repl-diskless-sync-delay", "0"))
	}
	nodes.Manage(t, append(append([]string{"create"}, nodes.Addrs()...), "--cluster-replicas", fmt.Sprint(replicas))...)
	nodes.AwaitWhole(t)
	return nodes
}

// Client returns a client of the cluster.
func (n Nodes) Client(t testing.TB) *redis.ClusterClient {
	return Closing(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: n.Addrs(), ContextTimeoutEnabled: true}))
}

// Addrs returns the addresses of the nodes.
func (n Nodes) Addrs() []string {
	var addrs []string
	for _, node := range n {
		addrs = append(addrs, node.Addr)
	}
	return addrs
}

// Manage runs redis-cli --cluster with a command and its arguments.
func (n Nodes) Manage(t testing.TB, args ...string) {
	t.Helper()
	args = append(append([]string{"--cluster"}, args...), "--cluster-yes")
	if out, err := exec.Command("redis-cli", args...).CombinedOutput(); err != nil {
		t.Fatalf("redis-cli %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// AwaitWhole waits until every node knows that all slots are served, and the
// replicas are in sync.
func (n Nodes) AwaitWhole(t testing.TB) {
	t.Helper()
	for _, node := range n {
		client := node.dial()
		defer client.Close()
		Await(t, 30*time.Second, "a cluster that is whole", func() bool {
			info := client.ClusterInfo(t.Context()).Val()
			shape := client.ClusterNodes(t.Context()).Val()
			role := client.Info(t.Context(), "replication").Val()
			replicas := len(n) - 3
			return strings.Contains(info, "cluster_state:ok") && strings.Count(shape, "slave") == replicas && !strings.Contains(shape, "fail") &&
				(replicas == 0 || strings.Contains(role, "master_link_status:up") || strings.Contains(role, "state=online"))
		})
	}
}

// Owner returns the node that serves the slot of a key.
func (n Nodes) Owner(t testing.TB, key string) (owner *Server) {
	t.Helper()
	Await(t, 30*time.Second, "a node that serves "+key, func() bool {
		for _, node := range n {
			if node.process != nil && node.serves(t, key) {
				owner = node
				return true
			}
		}
		return false
	})
	return owner
}

// serves reports whether a node serves a key without a redirection.
func (s *Server) serves(t testing.TB, key string) bool {
	client := s.dial()
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	return client.Exists(ctx, key).Err() == nil
}

// Replica returns the replica of a node, once it is in sync.
func (n Nodes) Replica(t testing.TB, of *Server) *Server {
	t.Helper()
	i := -1
	Await(t, 30*time.Second, "a replica of "+of.Addr, func() bool {
		info := of.replication(t)
		i = slices.IndexFunc(n, func(s *Server) bool {
			ip, port, _ := strings.Cut(s.Addr, ":")
			return strings.Contains(info, fmt.Sprintf("ip=%s,port=%s,state=online", ip, port))
		})
		return i >= 0
	})
	return n[i]
}

// Promoted waits until a replica has taken over.
func (n Nodes) Promoted(t testing.TB, replica *Server) time.Time {
	t.Helper()
	return Await(t, 30*time.Second, "a promotion", func() bool { return replica.leads(t) })
}
