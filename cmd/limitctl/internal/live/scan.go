package live

import (
	"context"
	"hash/maphash"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit/lua"
)

const (
	pageSize = 500 // keys in one call of SCAN: about 0.1 ms of Redis
	futile   = 100 // keys scanned for each key of the prefix: most may belong to other programs
)

// A pace bounds how many keys are looked at in a second.
type pace struct {
	perSecond int
	begun     time.Time
	done      int
}

// wait counts keys, and waits until they are due.
func (p *pace) wait(ctx context.Context, keys int) error {
	p.done += keys
	due := p.begun.Add(time.Duration(float64(p.done) / float64(p.perSecond) * float64(time.Second)))
	if ahead := time.Until(due); ahead > 0 {
		timer := time.NewTimer(ahead)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// A scan reads the names of keys on all primaries.
type scan struct {
	prefix string
	most   int // keys of the prefix
	pace   pace
	page   func(names []string) error

	mu      sync.Mutex
	seed    maphash.Seed
	seen    map[uint64]struct{} // SCAN may repeat a key
	scanned int                 // by count, of any prefix
	more    bool                // whether it stopped before the end
}

func (s *scan) run(ctx context.Context, client redis.UniversalClient) error {
	s.seed, s.seen, s.pace.begun = maphash.MakeSeed(), make(map[uint64]struct{}), time.Now()
	if cluster, ok := client.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return s.node(ctx, node) })
	}
	return s.node(ctx, client)
}

// node scans one server. Servers take turns, page by page.
func (s *scan) node(ctx context.Context, client redis.UniversalClient) error {
	for cursor, first := uint64(0), true; first || cursor != 0; first = false {
		var err error
		if cursor, err = s.step(ctx, client, cursor); err != nil {
			return err
		}
		if s.full() && cursor != 0 {
			s.mu.Lock()
			s.more = true
			s.mu.Unlock()
			return nil
		}
	}
	return nil
}

func (s *scan) full() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.seen) >= s.most || s.scanned >= s.most*futile
}

// step reads a page.
func (s *scan) step(ctx context.Context, client redis.UniversalClient, cursor uint64) (next uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	names, next, err := client.Scan(ctx, cursor, literal(s.prefix)+":*", pageSize).Result()
	if err != nil {
		return 0, err
	}
	s.scanned += pageSize
	fresh := names[:0]
	for _, name := range names {
		hash := maphash.String(s.seed, name)
		if _, again := s.seen[hash]; again {
			continue
		}
		if len(s.seen) >= s.most {
			s.more = true
			break
		}
		s.seen[hash] = struct{}{}
		fresh = append(fresh, name)
	}
	if err := s.page(fresh); err != nil {
		return 0, err
	}
	if next == 0 {
		return 0, nil
	}
	return next, s.pace.wait(ctx, max(len(fresh), pageSize/10)) // SCAN over foreign keys is cheap, not free
}

// literal escapes the characters of a SCAN pattern.
func literal(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(s)
}

// stateName reads the name of a key that holds the state of a rule.
func (l *Limits) stateName(name string) (n lua.Name, ok bool) {
	n, ok = lua.ParseKey(l.options.Prefix, name)
	return n, ok && !n.Returned && (n.Part > 0) == (l.options.Spread > 0)
}
