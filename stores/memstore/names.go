package memstore

import (
	"hash/maphash"
	"math/rand/v2"
	"sync/atomic"
	"unique"
	"unsafe"

	"github.com/routelimit/limit/core"
)

// A rule names a rule, or a variant of it. They are few and have many keys, so an entry
// holds a handle in place of the names.
type rule struct{ policy, name, variant string }

func ruleOf(c *core.Charge) rule { return rule{c.Policy, c.Rule, c.Variant} }

// A name is a rule with what finding its keys needs.
type name struct {
	rule
	handle unique.Handle[rule]
	hash   uint64
}

// names remembers rules that were charged, by where their names are in memory: a program
// charges a rule by the same strings again and again. It only saves time, so a rule may be
// missing, and one that takes the place of another seldom replaces it.
type names [512]atomic.Pointer[name]

// replaces is how many rules that find their place taken there are for each that takes it.
const replaces = 64

// name returns the rule of a charge, or nil if it is not remembered.
func (s *Store) name(c *core.Charge) *name {
	where := uintptr(unsafe.Pointer(unsafe.StringData(c.Rule))) + 31*uintptr(unsafe.Pointer(unsafe.StringData(c.Policy)))
	at := &s.names[(where>>3^where>>12)%uintptr(len(s.names))]
	n := at.Load()
	switch {
	case n != nil && n.rule.name == c.Rule && n.policy == c.Policy && n.variant == c.Variant: // faster than the structs
		return n
	case n != nil && rand.Uint32()%replaces != 0:
		return nil
	}
	n = &name{ruleOf(c), unique.Make(ruleOf(c)), s.hashRule(c)}
	at.Store(n)
	return n
}

func (s *Store) hashRule(c *core.Charge) uint64 { return maphash.Comparable(s.seed, ruleOf(c)) }
