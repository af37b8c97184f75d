package redistest

import (
	"context"
	"os/exec"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Cluster starts a Redis Cluster of six processes, three of them replicas, and
// returns a client of it. It skips the test where there is no redis-server or
// no redis-cli.
func Cluster(t testing.TB) *redis.ClusterClient {
	t.Helper()
	if !Installed(t) {
		t.Skip("no redis-server is installed")
	}
	cli, err := exec.LookPath("redis-cli")
	if err != nil {
		t.Skip(err)
	}
	var nodes []string
	for range 6 {
		nodes = append(nodes, Start(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "2000"))
	}
	create := append([]string{"--cluster", "create"}, nodes...)
	create = append(create, "--cluster-replicas", "1", "--cluster-yes")
	if out, err := exec.Command(cli, create...).CombinedOutput(); err != nil {
		t.Fatalf("redis-cli --cluster create: %v\n%s", err, out)
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: nodes, ContextTimeoutEnabled: true})
	t.Cleanup(func() { client.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	// Every slot must be served before a test begins.
	for _, key := range []string{"{a}", "{b}", "{c}", "{d}", "{e}", "{f}", "{g}", "{h}"} {
		for client.Set(ctx, key, "", time.Second).Err() != nil {
			select {
			case <-ctx.Done():
				t.Fatal("the cluster does not come up")
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	return client
}
