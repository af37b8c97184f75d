package limit

import (
	"fmt"
	"reflect"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/guard"
	"github.com/routelimit/limit/memstore"
	"github.com/routelimit/limit/refusals"
)

// OnError is what a rule wants while the store is out of reach. Errors that a
// request can cause are none: they are answered with 503, whatever rules want.
type OnError = core.OnError

// What a rule may want, with the words in the text grammar. If rules on a
// request differ, one that refuses refuses it, and those that are local admit it
// together or not at all.
const (
	// Local ("on-error local") lets this process decide, by what it has
	// admitted. See [Options].Instances.
	Local = core.Local

	// Allow ("on-error allow") lets everything pass the rule.
	Allow = core.Allow

	// Refuse ("on-error refuse") refuses everything, until the store is asked
	// the next time: 503, with a Retry-After. It is for rules that guard a
	// login.
	Refuse = core.Refuse
)

// A Mode is how a [Decision] was made.
type Mode = core.Mode

// The modes.
const (
	ModeExact      = core.ModeExact      // by the store
	ModeOverflow   = core.ModeOverflow   // by a memory store that is full, for keys together: never above the limit
	ModeRemembered = core.ModeRemembered // refused, since the store has refused the same less than a second ago: see package refusals
	ModeLocal      = core.ModeLocal      // by this process, without the store
	ModeAllowed    = core.ModeAllowed    // admitted without the store, since a rule wants Allow
	ModeRefused    = core.ModeRefused    // refused without the store, since a rule wants Refuse
)

// surrounded returns a store that works while the given one fails, and is asked
// no more than there is to learn. One in memory does not fail, and is asked at once.
func surrounded(store Store, o *Options) Store {
	if o.Instances < 0 {
		panic(fmt.Sprintf("limit: %d instances: write how many processes share the store, or 0 for one", o.Instances))
	}
	if o.MaxKeys < 0 {
		panic(fmt.Sprintf("limit: MaxKeys %d: write how many keys to remember, or 0 for %d", o.MaxKeys, memstore.DefaultMaxKeys))
	}
	if v := reflect.ValueOf(store); v.Kind() == reflect.Pointer && v.IsNil() {
		panic(fmt.Sprintf("limit: the store is a nil %T: write nil for one in memory, or make it with New", store))
	}
	switch store.(type) {
	case nil:
		return memstore.New(&memstore.Options{MaxKeys: o.MaxKeys})
	case *memstore.Store:
		if o.MaxKeys != 0 {
			panic("limit: MaxKeys and a memory store of your own: write it in its memstore.Options")
		}
		return store
	case *guard.Store, *refusals.Store:
		if o.Instances != 0 || o.MaxKeys != 0 {
			panic("limit: Instances or MaxKeys, and a guard of your own: write them in its guard.Options")
		}
	default:
		store = guard.New(store, &guard.Options{Instances: o.Instances, MaxKeys: o.MaxKeys, Log: o.Log})
	}
	if _, around := store.(*refusals.Store); around {
		return store
	}
	return refusals.New(store)
}
