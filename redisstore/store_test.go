package redisstore

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/storetest"
)

// TestStore runs the suite of all stores.
func TestStore(t *testing.T) {
	client := redistest.Client(t)
	storetest.Run(t, func(t *testing.T, test func(*testing.T, storetest.Harness)) {
		if err := client.FlushDB(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		test(t, harness(client))
	})
}

func harness(client redis.UniversalClient) storetest.Harness {
	now := start
	return storetest.Harness{Store: at(client, &now), SetTime: func(micros int64) { now = micros }}
}
