package redisstore

import (
	"fmt"
	"reflect"
	"time"

	"github.com/redis/go-redis/v9"
)

// checkClient panics on a client that the store cannot use.
func checkClient(client redis.UniversalClient) {
	const instead = "write redisstore.New(redis.NewClient(&redis.Options{Addr: \"localhost:6379\"}), nil)"
	if client == nil {
		panic("redisstore: the client is nil: " + instead)
	}
	if v := reflect.ValueOf(client); v.Kind() == reflect.Pointer && v.IsNil() {
		panic(fmt.Sprintf("redisstore: the client is a nil %T: %s", client, instead))
	}
	switch c := client.(type) {
	case *redis.ClusterClient:
		if c.Options().ReadOnly {
			panic("redisstore: the ClusterClient reads from replicas, which lag and cannot enforce limits: " +
				"give the store one without ReadOnly, RouteByLatency and RouteRandomly")
		}
	case *redis.Ring:
		panic("redisstore: a Ring moves the keys of an unavailable server to another, where every quota begins anew: " +
			"write redis.NewClusterClient, or redis.NewClient for one server")
	}
}

// withDeadlines returns a client on the connections of the given one that ends its
// calls at the deadline of their context, and whether it does. By default go-redis
// waits 5 s for the server whatever the context says.
func withDeadlines(client redis.UniversalClient, timeout time.Duration) (redis.UniversalClient, bool) {
	switch c := client.(type) {
	case *redis.Client:
		o := c.Options()
		if o.ContextTimeoutEnabled && o.ReadTimeout >= 0 && o.WriteTimeout >= 0 {
			return c, true
		}
		// The options of the copy are its own until it is used. Should a later
		// version change that, the store bounds the calls itself.
		c = c.WithTimeout(timeout)
		own := c.Options()
		own.ContextTimeoutEnabled = true
		if o.ReadTimeout > 0 {
			own.ReadTimeout = o.ReadTimeout
		}
		if o.WriteTimeout > 0 {
			own.WriteTimeout = o.WriteTimeout
		}
		return c, c.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		o := c.Options()
		return c, o.ContextTimeoutEnabled && o.ReadTimeout >= 0 && o.WriteTimeout >= 0
	}
	return client, false
}
