package proof

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/internal/redistest"
)

// failover kills the primary, waits for the next one, and returns both and the time at which it
// took over.
func failover(t *testing.T, s *redistest.Sentinel) (dead, primary *redistest.Server, at time.Time) {
	t.Helper()
	dead = s.Primary(t)
	require.NotNil(t, dead, "there is no primary")
	dead.Kill()
	at = redistest.Await(t, 30*time.Second, "a new primary", func() bool {
		primary = s.Primary(t)
		return primary != nil
	})
	return dead, primary, at
}

// rejoin restarts a dead node as a replica of the primary, and waits until every sentinel is done
// with the last failover.
func rejoin(t *testing.T, s *redistest.Sentinel, dead, primary *redistest.Server) {
	t.Helper()
	dead.Restart("--replicaof", strings.Replace(primary.Addr, ":", " ", 1))
	s.AwaitReplicas(t)
	for _, addr := range s.Addrs {
		s.Await(t, addr, "a sentinel that knows two live replicas", func(sentinel *redis.SentinelClient) bool {
			replicas, err := sentinel.Replicas(t.Context(), s.Name).Result()
			live := 0
			for _, replica := range replicas {
				if replica["flags"] == "slave" && replica["master-link-status"] == "ok" {
					live++
				}
			}
			return err == nil && live == 2
		})
	}
}
