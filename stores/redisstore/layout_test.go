package redisstore

import (
	"context"
	"errors"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/stores/storetest"
)

// TestLayoutRefresh holds that the store asks for the layout of a Cluster three times
// after a failure, and leaves no goroutine in between: the client may be closed.
func TestLayoutRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		client := redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: []string{"127.0.0.1:1"}, MaxRedirects: -1, DialerRetries: 1,
			Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("refused") },
			ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
				asked.Add(1)
				return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: "127.0.0.1:1"}}}}, nil
			},
		})
		store := New(client, nil)
		_, err := storetest.Take(t.Context(), store, "p", []core.Charge{charge("r", "k", 5, time.Hour)})
		require.ErrorIs(t, err, core.ErrOutOfReach)
		require.NoError(t, client.Close())
		for i := range int64(refreshTimes) {
			synctest.Wait()
			require.Equal(t, 2+i, asked.Load(), "the first one by the client")
			stacks := make([]byte, 1<<20)
			for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
				require.False(t, strings.Contains(stack, "synctest bubble") && strings.Contains(stack, "created by github.com/routelimit/limit/stores/redisstore."), stack)
			}
			time.Sleep(refreshEvery)
		}
		time.Sleep(time.Minute)
		require.EqualValues(t, 1+refreshTimes, asked.Load())
		require.Zero(t, store.refreshes.Load())
	})
}
