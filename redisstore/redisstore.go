// Package redisstore keeps the state of rules on Redis or Valkey: one server,
// Sentinel or a Cluster.
//
// A decision is one call of one script, whatever the number of its rules; see
// package lua. While a call is in flight, decisions on the same policy collect
// and go together as the next call; a decision that comes alone goes at once.
// The time is that of the server.
//
// All keys of a policy share a hash tag, and so a slot of a Cluster: decisions
// are exact and atomic there too, and one shard carries one policy. For a policy
// that is larger than a shard there is [Options.Spread], which gives that up in
// part.
package redisstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/lua"
)

// defaultTimeout is above what a healthy system takes: pauses of a garbage
// collector, a server that forks, a container that is throttled for most of a
// period of 100 ms. It is below what the retransmission of a lost packet takes
// (200 ms), which is not worth waiting for.
const defaultTimeout = 100 * time.Millisecond

// Options configures a [Store]. The zero Options is ready to use.
type Options struct {
	// Prefix begins every key; empty means "limit". Programs that share a
	// Redis and not their quotas use different ones. Braces are not allowed.
	Prefix string

	// Timeout bounds each call, whatever the client's options say; 0 means
	// 100 ms. What takes longer is an error that wraps [core.ErrUnavailable].
	//
	// With a [redis.ClusterClient], set ContextTimeoutEnabled in its options.
	// Without it the store keeps the time beside the client, which costs a lone
	// decision about a quarter more, and a call that is given up holds its
	// connection until the client's own ReadTimeout (5 s) ends.
	Timeout time.Duration

	// Secret, of at least 16 random bytes, keeps who the clients are out of
	// Redis: their keys are replaced by an HMAC-SHA-256 of them, under which
	// nobody without the Secret can find an address or a user. Policies and rules
	// stay readable, and so does what is counted. Nil hides nothing.
	//
	// All programs that share quotas write the same one. Another one makes Redis
	// forget all limits but those that everyone shares. An empty one that is not
	// nil, such as of a variable that is not set, is refused.
	Secret []byte

	// Spread is the number of parts over which the keys of each policy are
	// spread in a Cluster, at most [lua.MaxParts]; 0 keeps a policy in one slot.
	// It is for a policy that is more than one shard can carry, and whose rules
	// have a key for each client. Write the number of primaries, or a small
	// multiple of it: the parts lie evenly over the slots, and the fewer they
	// are, the more decisions share a call. All programs that share quotas must
	// have the same number; with another one they begin anew.
	//
	// Charges whose keys hash to one part are decided together, as without
	// Spread; rules with the same key always are. Those of other parts are taken
	// at the same time, and given back at once where another part refuses or
	// fails. So a policy never admits more than its rules allow. What it gives
	// up:
	//   - A request that one part refuses holds what another part had, until it
	//     is given back a round trip or two later. Meanwhile others may be
	//     refused for it, with a RetryAfter as if it had been admitted. That ends
	//     where more units are free than such requests are under way: so a
	//     client above its own limit, with many requests at once, can have others
	//     refused by a small rule that all share. Keep such rules in a policy
	//     without Spread.
	//   - A rule that all requests share is one key, and stays on one shard.
	//   - Refusing costs two calls more for each part that had room, and as many
	//     round trips. Each has a Timeout of its own.
	//   - Units of buckets come back as exactly as [core.Return] says, and turns
	//     of a queue only while they are its last, and not passing. Taking under
	//     an id that holds a lease already, and being refused, ends that lease.
	//   - What cannot be given back stays taken: see [Store.Unreturned].
	//   - Each server decides by its own clock, see [core.Decision.TimeOf], and
	//     what is left in several parts is no snapshot, of a peek neither.
	//   - Return, Renew and Release do in each part what they can. An error says
	//     that one of them failed, or may have, and not that none succeeded.
	Spread int
}

// A Store is a [core.Store] on Redis. It is safe for concurrent use, has no
// goroutine while nothing is asked, and does not close the client. Hooks that
// are added to a [redis.Client] after [New] do not see its calls.
//
// Each call is sent once: a call whose reply is lost is not repeated by the
// client, since the first may have counted. It then fails, and may have taken
// its charges.
//
// A server that was started anew since the last call, or is another one since a
// failover, and so may have lost data, is an error of one Take, and of all calls under way,
// that wraps [core.ErrForgotten]; the next go on with what it has. It is noticed by its
// run id, after a call that failed, and when it has lost the scripts; and a round
// trip after the first call over a new connection, by processes that asked nothing meanwhile, and of which another one
// has sent the script again. The user of the client needs the right to INFO for it, which
// is also asked before the first call.
type Store struct {
	client  redis.UniversalClient
	heeds   bool // whether the client heeds the deadline of a context
	hidden  *identities
	timeout time.Duration

	calls      atomic.Int64 // the number of the last call, as no other store has it
	errTimeout error
	servers    sync.Map     // by their addresses
	anyFailure atomic.Bool  // of a call
	losses     atomic.Int64 // how often a server was found to be another one
	told       atomic.Int64 // those of which a caller of Take has heard
	reloaded   atomic.Int64 // when the layout of the Cluster was last asked for
	reloads    atomic.Int32 // how many such questions are under way
	knocks     knocks

	part               // of all keys, unless the store spreads
	parts []part       // if it does
	kept  atomic.Int64 // see Unreturned

	now   func() string // empty but in tests: the server knows the time
	grace int           // ms that keys outlive their last unit
}

var _ core.Store = (*Store)(nil)

// New returns a store on a client. A nil options means the zero Options. New
// panics on a nil client, on one that reads from replicas, on a [redis.Ring], on
// a prefix with braces and on a short secret.
func New(client redis.UniversalClient, options *Options) *Store {
	if client == nil {
		panic("redisstore: the client is nil: write redisstore.New(redis.NewClient(&redis.Options{Addr: \"localhost:6379\"}), nil)")
	}
	s := &Store{
		knocks:  knocks{at: make(map[string]*knock)},
		timeout: defaultTimeout,
		now:     func() string { return "" },
		grace:   1, // Redis expires by a clock in whole ms
	}
	s.prefix = "limit"
	if options != nil && options.Prefix != "" {
		s.prefix = options.Prefix
	}
	if options != nil && options.Timeout > 0 {
		s.timeout = options.Timeout
	}
	if options != nil {
		s.hidden = newIdentities(options.Secret)
	}
	if strings.ContainsAny(s.prefix, "{}") {
		panic(fmt.Sprintf("redisstore: prefix %q: braces mark the slot of a Cluster: write it without them", s.prefix))
	}
	s.part.begin(s, s.prefix, maxPolicies)
	if options != nil && options.Spread != 0 {
		s.spread(options.Spread)
	}
	s.errTimeout = fmt.Errorf("%w: Redis has not answered within %v", core.ErrOutOfReach, s.timeout)
	s.calls.Store(rand.Int64N(1 << 52)) // exact in Lua
	s.client, s.heeds = heeding(client, s.timeout)
	return s
}

// Take implements [core.Store]. A ctx that ends while the decision waits for
// its turn takes nothing; one that ends during the call leaves the outcome
// unknown. That it has been cancelled, a decision that is alone in its call may
// see only when the call ends; a deadline it heeds. A store that spreads gives
// back what the parts took of which it knows, also after ctx has ended.
//
// The error of a ctx that has ended is that of the ctx. Errors that say nothing
// about what was asked wrap [core.ErrUnavailable].
func (s *Store) Take(ctx context.Context, policy string, charges []core.Charge) (core.Decision, error) {
	if err := core.ValidateCharges(charges); err != nil {
		return core.Decision{}, err
	}
	if err := ctx.Err(); err != nil {
		return core.Decision{}, err
	}
	if s.told.Load() != s.losses.Load() {
		return core.Decision{}, s.tell(errForgotten)
	}
	var d core.Decision
	var err error
	if s.parts != nil {
		d, err = s.takeSpread(ctx, policy, charges)
	} else {
		d, err = s.batcher(policy, charges).take(ctx, charges)
	}
	return d, s.tell(err)
}

// call runs the script once for a batch of decisions.
func (s *Store) call(ctx context.Context, rules *lua.Rules, batch [][]core.Charge) ([]int64, error) {
	keys, args := rules.Encode(s.now(), s.grace, batch)
	number := s.calls.Add(1)
	reply, err := s.run(ctx, rules.Script, keys, append(args, number))
	if err != nil {
		return nil, err
	}
	last := len(reply) - 1
	if last < 0 || reply[last] != number {
		return nil, errOtherCall
	}
	return reply[:last], nil
}

// errOtherCall is about a reply that came out of order. Clients and proxies have
// mixed them up (CVE-2025-29923), and one would be another's verdict.
var errOtherCall = fmt.Errorf("%w: the reply is that to another call", core.ErrOutOfReach)
