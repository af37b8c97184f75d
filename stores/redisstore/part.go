package redisstore

import (
	"hash/fnv"
	"slices"
	"strings"
	"sync"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/lua"
)

// A part is the keys of each policy that share a hash tag: all of them or, in a
// store that spreads, those with one hash.
type part struct {
	store  *Store
	prefix string // of the keys, as package lua takes it
	most   int    // policies that have a batcher

	mu       sync.RWMutex
	policies map[string][]*batcher // by the policy of the first charge
	batchers int                   // in policies
}

// Bounds on the number of batchers, for a program that invents policies as it
// runs. Dropping a batcher costs nothing but a batch.
const (
	maxPolicies = 4096
	maxVariants = 64 // rule sets of one policy: of plans, of priorities, before and after a reload
	usual       = 8  // variants of a policy; p.most policies may have so many on average

	maxPoliciesOfPart = 512 // in a store that spreads
)

// batcher returns the batcher for requests of the shape of asks.
func (p *part) batcher(asks []core.Ask) *batcher { return p.batcherOf(asks[0].Charges[0].Policy, asks) }

func (p *part) returner(policy string) *batcher { return p.batcherOf(policy, nil) }

func (p *part) batcherOf(policy string, asks []core.Ask) *batcher {
	p.mu.RLock()
	b := find(p.policies[policy], asks)
	p.mu.RUnlock()
	if b != nil {
		return b
	}
	var returner *batcher
	if asks != nil {
		returner = p.returner(policy)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	variants := p.policies[policy]
	if b = find(variants, asks); b != nil {
		return b
	}
	if len(p.policies) >= p.most || p.batchers >= usual*p.most {
		clear(p.policies)
		variants, p.batchers = nil, 0
	}
	if len(variants) >= maxVariants {
		variants = evict(variants)
		p.batchers--
	}
	b = &batcher{part: p, store: p.store}
	if asks != nil {
		b.rules, b.returner = lua.NewRules(p.prefix, asks), returner
	}
	p.policies[strings.Clone(policy)] = append(slices.Clip(variants), b)
	p.batchers++
	return b
}

// evict returns the variants without one that was not used since the last eviction:
// of those, the oldest. Variants before it get a second chance.
func evict(variants []*batcher) []*batcher {
	i := max(0, slices.IndexFunc(variants, func(b *batcher) bool { return !b.used.Swap(false) }))
	return slices.Concat(variants[:i], variants[i+1:])
}

func find(variants []*batcher, asks []core.Ask) *batcher {
	for _, b := range variants {
		if b.rules == nil && asks == nil || b.rules != nil && b.rules.Match(asks) {
			if !b.used.Load() { // a write would take the cache line from other processors
				b.used.Store(true)
			}
			return b
		}
	}
	return nil
}

// partOf returns the part that a key is in.
func (s *Store) partOf(key string) *part {
	if s.parts == nil {
		return &s.part
	}
	h := fnv.New64a() // all processes and versions must find the same part
	h.Write([]byte(key))
	hash := h.Sum64()
	return &s.parts[(hash^hash>>32)%uint64(len(s.parts))]
}
