package redisfacts

import (
	"reflect"
	"time"

	"github.com/redis/go-redis/v9"
)

// Bounded returns a client whose calls end with their context, and after a timeout if that
// is earlier, where it can be one. Otherwise they end after the timeouts and retries of the
// client. It panics if the client is nil: the text begins with the package that was given it.
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
