// Package decorate puts around a store what a limiter needs there.
package decorate

import (
	"fmt"
	"log/slog"
	"reflect"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/stores/guard"
	"github.com/routelimit/limit/stores/memstore"
	"github.com/routelimit/limit/stores/refusals"
)

// Options are those of a limiter that its store needs.
type Options struct {
	Instances, MaxKeys int
	Log                *slog.Logger
}

// Store returns the store with the decorators that it needs and does not have: a guard for outages,
// and a memory of refusals. A nil store means one in memory. It panics if options have no effect on
// the store.
func Store(store core.Store, o Options) core.Store {
	if v := reflect.ValueOf(store); v.Kind() == reflect.Pointer && v.IsNil() {
		panic(fmt.Sprintf("limit: the store is a nil %T: write nil for a memory store, or make the store with its New", store))
	}
	if s, ok := store.(interface{ Guarded() bool }); ok && s.Guarded() {
		if o.Instances != 0 || o.MaxKeys != 0 {
			panic("limit: Instances and MaxKeys have no effect on your own guard: set them in guard.Options")
		}
		return store
	}
	switch store.(type) {
	case nil:
		return memstore.New(&memstore.Options{MaxKeys: o.MaxKeys})
	case *memstore.Store:
		if o.MaxKeys != 0 {
			panic("limit: MaxKeys has no effect on your own memory store: set memstore.Options.MaxKeys")
		}
		return store
	case *guard.Store, *refusals.Store:
		if o.Instances != 0 || o.MaxKeys != 0 {
			panic("limit: Instances and MaxKeys have no effect on your own guard: set them in guard.Options")
		}
	default:
		store = guard.New(store, &guard.Options{Instances: o.Instances, MaxKeys: o.MaxKeys, Log: o.Log})
	}
	if _, ok := store.(*refusals.Store); ok {
		return store
	}
	return refusals.New(store)
}
