// Package keyscan finds the keys that begin with a prefix, without holding up a server.
package keyscan

import (
	"context"
	"hash/maphash"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	pageSize = 500 // keys in one call of SCAN: about 0.1 ms of Redis
	futile   = 100 // keys scanned for each key of the prefix: most may belong to other programs
)

// A Scan reads the names of keys that begin with a prefix and a colon, by SCAN, without those of
// the library that are no quotas. It may be run once.
type Scan struct {
	Prefix string
	Most   int // how many keys to read, at most
	Pace   int // how many keys to read in a second, at most; 0 means any number

	// Page is called with the names that a server has, page by page, by one goroutine at
	// a time. No name comes twice.
	Page func(ctx context.Context, server redis.Cmdable, names []string) error

	mu      sync.Mutex
	begun   time.Time
	seed    maphash.Seed
	seen    map[uint64]struct{} // SCAN may repeat a key
	scanned int                 // by count, of any prefix
	paced   int                 // keys that count for the pace
	more    bool
}

// Run scans a server, or all primaries of a Cluster. It reports whether there may be more
// keys than were read.
func (s *Scan) Run(ctx context.Context, client redis.UniversalClient) (more bool, err error) {
	s.seed, s.seen, s.begun = maphash.MakeSeed(), make(map[uint64]struct{}), time.Now()
	if cluster, ok := client.(*redis.ClusterClient); ok {
		err = cluster.ForEachMaster(ctx, func(ctx context.Context, server *redis.Client) error { return s.server(ctx, server) })
	} else {
		err = s.server(ctx, client)
	}
	return s.more, err
}

// server scans one server. Servers take turns, page by page.
func (s *Scan) server(ctx context.Context, server redis.Cmdable) error {
	cursor, err := s.step(ctx, server, 0)
	for err == nil && cursor != 0 {
		cursor, err = s.step(ctx, server, cursor)
	}
	return err
}

// step reads a page. It returns 0 after the last one.
func (s *Scan) step(ctx context.Context, server redis.Cmdable, cursor uint64) (next uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	names, next, err := server.Scan(ctx, cursor, literal(s.Prefix)+":*", pageSize).Result()
	if err != nil {
		return 0, err
	}
	s.scanned += pageSize
	fresh := names[:0]
	for _, name := range names {
		hash := maphash.String(s.seed, name)
		if _, again := s.seen[hash]; again || s.isOther(name) {
			continue
		}
		if len(s.seen) >= s.Most {
			s.more = true
			break
		}
		s.seen[hash] = struct{}{}
		fresh = append(fresh, name)
	}
	if err := s.Page(ctx, server, fresh); err != nil || next == 0 {
		return 0, err
	}
	if len(s.seen) >= s.Most || s.scanned >= s.Most*futile {
		s.more = true
		return 0, nil
	}
	return next, s.wait(ctx, max(len(fresh), pageSize/10)) // SCAN over foreign keys is cheap, not free
}

// isOther reports whether a key of the library is no quota, but a document of package control or
// the list of processes that share the Redis. No tool proposes to delete those.
func (s *Scan) isOther(name string) bool {
	return strings.HasPrefix(name, s.Prefix+":control:{") || name == s.Prefix+":sharers"
}

// wait counts keys, and waits until they are due.
func (s *Scan) wait(ctx context.Context, keys int) error {
	s.paced += keys
	if s.Pace > 0 {
		due := s.begun.Add(time.Duration(float64(s.paced) / float64(s.Pace) * float64(time.Second)))
		select {
		case <-time.After(time.Until(due)):
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// literal escapes the characters of a SCAN pattern.
func literal(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(s)
}
