// Package redisfacts asks a Redis server whether a store can work on it. Package
// redisstore and limitctl doctor share it. It writes nothing.
package redisfacts

import (
	"context"
	"reflect"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// MaxOffset is how far the clock of a server may be from that of this machine.
const MaxOffset = time.Second

// Info returns the fields of INFO.
func Info(ctx context.Context, client redis.UniversalClient) (map[string]string, error) {
	text, err := client.Info(ctx).Result()
	if err != nil {
		return nil, err
	}
	return Lines(text), nil
}

// Lines reads "name:value" lines.
func Lines(text string) map[string]string {
	m := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), ":"); ok {
			m[name] = value
		}
	}
	return m
}

// Eviction reports what a server does to keys with these settings: whether it evicts
// them when memory is full, and whether it would if maxmemory were set.
func Eviction(policy, maxmemory string) (evicts, would bool) {
	would = policy != "" && policy != "noeviction"
	return would && maxmemory != "0", would
}

// Clock returns the time of the server, and how far it is ahead of the clock of this
// machine, give or take uncertainty. The server read its clock somewhere between
// request and reply, so the uncertainty is half of the shortest of five round trips.
func Clock(ctx context.Context, client redis.UniversalClient) (at time.Time, offset, uncertainty time.Duration, err error) {
	shortest := time.Duration(-1)
	for range 5 {
		start := time.Now()
		now, err := client.Time(ctx).Result()
		trip := time.Since(start)
		if err != nil {
			return at, offset, uncertainty, err
		}
		if shortest < 0 || trip < shortest {
			shortest = trip
			at, offset, uncertainty = now, now.Sub(start.Add(trip/2)), (trip+1)/2
		}
	}
	return at, offset, uncertainty, nil
}

// Bounded returns a client whose calls end with their context, and after a timeout if that
// is earlier. Only a [redis.Client] can be bounded: calls of others end after their own
// timeouts and retries. Bounded panics if the client is nil, and the text begins with of.
func Bounded(client redis.UniversalClient, timeout time.Duration, of string) redis.UniversalClient {
	if v := reflect.ValueOf(client); client == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		panic(of + ": the client is nil: write redis.NewClient(&redis.Options{Addr: \"localhost:6379\"})")
	}
	if single, ok := client.(*redis.Client); ok {
		copied := single.WithTimeout(timeout) // with options of its own
		copied.Options().ContextTimeoutEnabled = true
		return copied
	}
	return client
}
