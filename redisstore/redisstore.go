// Package redisstore keeps the state of rules on Redis or Valkey: one server,
// Sentinel or a Cluster.
//
// A decision is one call of one script, whatever the number of its rules; see
// package lua. While a call is in flight, decisions on the same policy collect
// and go together as the next call; a decision that comes alone goes at once.
// The time is that of the server.
//
// All keys of a policy share a hash tag, and so a slot of a Cluster: decisions
// are exact and atomic there too, and one shard carries one policy.
package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/lua"
)

// Options configures a [Store]. The zero Options is ready to use.
type Options struct {
	// Prefix begins every key; empty means "limit". Programs that share a
	// Redis and not their quotas use different ones. Braces are not allowed.
	Prefix string

	// Timeout bounds each call; 0 means one second. It takes effect only as
	// far as the client heeds it: set ContextTimeoutEnabled in its options.
	Timeout time.Duration
}

// A Store is a [core.Store] on Redis. It is safe for concurrent use, starts no
// goroutine, and does not close the client.
//
// Each call is sent once: a call whose reply is lost is not repeated by the
// client, since the first may have counted. It then fails, and may have taken
// its charges.
type Store struct {
	client  redis.UniversalClient
	prefix  string
	timeout time.Duration

	mu       sync.RWMutex
	policies map[string][]*batcher

	now   func() string // empty but in tests: the server knows the time
	grace int           // ms that keys outlive their last unit
}

var _ core.Store = (*Store)(nil)

// New returns a store on a client. A nil options means the zero Options. New
// panics on a nil client and on a prefix with braces.
func New(client redis.UniversalClient, options *Options) *Store {
	if client == nil {
		panic("redisstore: the client is nil: write redisstore.New(redis.NewClient(&redis.Options{Addr: \"localhost:6379\"}), nil)")
	}
	s := &Store{
		client:   client,
		prefix:   "limit",
		timeout:  time.Second,
		policies: make(map[string][]*batcher),
		now:      func() string { return "" },
		grace:    1, // Redis expires by a clock in whole ms
	}
	if options != nil && options.Prefix != "" {
		s.prefix = options.Prefix
	}
	if options != nil && options.Timeout > 0 {
		s.timeout = options.Timeout
	}
	if strings.ContainsAny(s.prefix, "{}") {
		panic(fmt.Sprintf("redisstore: prefix %q: braces mark the slot of a Cluster: write it without them", s.prefix))
	}
	return s
}

// Take implements [core.Store]. A ctx that ends while the decision waits for
// its turn takes nothing; one that ends during the call leaves the outcome
// unknown, unless the caller carries the call for others as well: it then
// stays until the call ends.
func (s *Store) Take(ctx context.Context, policy string, charges []core.Charge) (core.Decision, error) {
	if err := core.ValidateCharges(charges); err != nil {
		return core.Decision{}, err
	}
	if err := ctx.Err(); err != nil {
		return core.Decision{}, err
	}
	return s.batcher(policy, charges).take(ctx, charges)
}

// Bounds on what the store remembers of policies, so that a program that makes
// them up as it goes does not grow. Forgetting one costs nothing but a batch.
const (
	maxPolicies = 4096
	maxVariants = 8 // rule sets of one policy, such as before and after a reload
)

// batcher returns the batcher for decisions with the rules of charges.
func (s *Store) batcher(policy string, charges []core.Charge) *batcher {
	s.mu.RLock()
	b := find(s.policies[policy], charges)
	s.mu.RUnlock()
	if b != nil {
		return b
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	variants := s.policies[policy]
	if b = find(variants, charges); b != nil {
		return b
	}
	if len(s.policies) >= maxPolicies {
		clear(s.policies)
	}
	if len(variants) >= maxVariants {
		variants = variants[1:]
	}
	b = &batcher{store: s, rules: lua.NewRules(s.prefix, policy, charges)}
	s.policies[strings.Clone(policy)] = append(variants[:len(variants):len(variants)], b)
	return b
}

func find(variants []*batcher, charges []core.Charge) *batcher {
	for _, b := range variants {
		if b.rules.Match(charges) {
			return b
		}
	}
	return nil
}

// call runs the script once for a batch of decisions.
func (s *Store) call(ctx context.Context, rules *lua.Rules, batch [][]core.Charge) ([]int64, error) {
	keys, args := rules.Encode(s.now(), s.grace, batch)
	return s.eval(context.WithoutCancel(ctx), rules.Script, keys, args)
}

// eval runs a script, which the server may not know yet.
func (s *Store) eval(ctx context.Context, script *lua.Script, keys []string, args []any) ([]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	reply, err := s.run(ctx, "evalsha", script.SHA, keys, args)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		reply, err = s.run(ctx, "eval", script.Text, keys, args)
	}
	return reply, err
}

func (s *Store) run(ctx context.Context, command, script string, keys []string, args []any) ([]int64, error) {
	words := make([]any, 0, 3+len(keys)+len(args))
	words = append(words, command, script, len(keys))
	for _, key := range keys {
		words = append(words, key)
	}
	cmd := once{redis.NewIntSliceCmd(ctx, append(words, args...)...)}
	cmd.SetFirstKeyPos(3)
	if err := s.client.Process(ctx, cmd); err != nil {
		return nil, err
	}
	return cmd.Result()
}

// once is a command that the client does not repeat.
type once struct{ *redis.IntSliceCmd }

func (once) NoRetry() bool { return true }

// isScriptError reports whether the server ran the script in vain. The script
// reads and checks everything before it writes, so nothing was taken.
func isScriptError(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply) && strings.HasPrefix(reply.Error(), "ERR ")
}
