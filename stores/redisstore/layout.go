package redisstore

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	refreshEvery = 100 * time.Millisecond
	refreshTimes = 3 // for a failure
	maxRefreshes = 8 // at the same time
)

// refreshLayout asks the Cluster which server has which slot. The client itself asks once a minute,
// and when a server redirects it, which a dead one cannot. It asks several times, so that a breaker's probe
// a quarter of a second later goes by the layout of that moment. A server that hangs holds the
// question for 5 s: ForEachMaster then asks another one, while after ReloadState all further
// questions would wait behind it.
func (s *Store) refreshLayout() {
	client, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return
	}
	now, last := time.Now().UnixNano(), s.refreshed.Load()
	if now-last < int64(refreshEvery) || !s.refreshed.CompareAndSwap(last, now) {
		return
	}
	if s.refreshes.Add(1) > maxRefreshes {
		s.refreshes.Add(-1)
		return
	}
	go s.askLayout(client, refreshTimes)
}

// askLayout asks a number of times. Between them only a timer is left, since the
// store does not learn when the client is closed.
func (s *Store) askLayout(client *redis.ClusterClient, times int) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	client.ForEachMaster(ctx, func(context.Context, *redis.Client) error { return nil }) // asks first
	cancel()
	if times == 1 {
		s.refreshes.Add(-1)
		return
	}
	time.AfterFunc(refreshEvery, func() { s.askLayout(client, times-1) })
}
