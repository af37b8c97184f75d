package redisstore

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit/internal/redistest"
)

// TestClientsThatNewRejects has clients that the store cannot use.
func TestClientsThatNewRejects(t *testing.T) {
	const instead = `write redisstore.New(redis.NewClient(&redis.Options{Addr: "localhost:6379"}), nil)`
	assert.PanicsWithValue(t, "redisstore: the client is nil: "+instead, func() { New(nil, nil) })
	assert.PanicsWithValue(t, "redisstore: the client is a nil *redis.Client: "+instead, func() { New((*redis.Client)(nil), nil) })
	assert.PanicsWithValue(t, "redisstore: the client is a nil *redis.ClusterClient: "+instead, func() { New((*redis.ClusterClient)(nil), nil) })
	for _, options := range []redis.ClusterOptions{{ReadOnly: true}, {RouteByLatency: true}, {RouteRandomly: true}} {
		options.Addrs = []string{"127.0.0.1:1"}
		client := redistest.Closing(t, redis.NewClusterClient(&options))
		assert.PanicsWithValue(t, "redisstore: the ClusterClient reads from replicas, which lag and cannot enforce limits: "+
			"give the store one without ReadOnly, RouteByLatency and RouteRandomly", func() { New(client, nil) })
	}
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer ring.Close()
	assert.Panics(t, func() { New(ring, nil) })
}

func TestOptionsThatNewRejects(t *testing.T) {
	client := redistest.Closing(t, redis.NewClient(&redis.Options{}))
	assert.PanicsWithValue(t, "redisstore: Timeout -1ns: write how long a call may take, or 0 for 100ms",
		func() { New(client, &Options{Timeout: -time.Nanosecond}) })
	assert.PanicsWithValue(t, `redisstore: Prefix "a{b}": braces mark the slot of a Cluster: write it without them`,
		func() { New(client, &Options{Prefix: "a{b}"}) })
	assert.NotPanics(t, func() { New(client, &Options{}) })
}
