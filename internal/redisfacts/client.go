package redisfacts

import (
	"reflect"
	"time"

	"github.com/redis/go-redis/v9"
)

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
