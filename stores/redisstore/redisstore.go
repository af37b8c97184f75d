// Package redisstore keeps the state of rules on Redis or Valkey: on one server,
// behind Sentinel, or in a Cluster.
//
// A decision is one call of one script, however many rules it has; see package lua. While a call is
// in flight, further decisions on the same policy are collected and sent together in the next call.
// A lone decision is sent at once. All times are those of the server.
//
// All keys of a policy share a hash tag, and so a slot of a Cluster. Decisions are
// exact and atomic there too, and one shard carries one policy. For a policy that
// is more than a shard can carry, see [Options.Spread].
package redisstore

import (
	"cmp"
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

// defaultTimeout is above the pauses of a healthy system: garbage collection, a server that forks,
// a container throttled for most of 100 ms. It is below the 200 ms after which a lost packet is
// sent again.
const defaultTimeout = 100 * time.Millisecond

// Options configures a [Store]. The zero Options is ready to use.
type Options struct {
	// Prefix begins every key; empty means "limit". Set different ones for programs
	// that share a Redis but not their quotas. Braces are not allowed.
	Prefix string

	// Timeout bounds each call, whatever the client's options say; 0 means 100 ms, or
	// six round trips to a Redis that is 17 to 80 ms away.
	// A call that takes longer returns an error that wraps [core.ErrUnavailable].
	//
	// With a [redis.ClusterClient], set ContextTimeoutEnabled in its options.
	// Otherwise a lone decision costs about a quarter more, and a call that is
	// given up holds its connection until the client's ReadTimeout (5 s).
	Timeout time.Duration

	// Secret, of at least 16 random bytes, keeps client addresses and user names
	// out of Redis: each key is replaced by its HMAC-SHA-256 with the Secret.
	// Policies, rules and counts stay readable. Nil stores keys as they are.
	//
	// Set the same Secret in all programs that share quotas. A changed Secret
	// resets all quotas except those that every client shares. New panics on an
	// empty Secret that is not nil, as from an environment variable that is not set.
	Secret []byte

	// Spread divides the keys of each policy into this many parts of a Cluster, at most
	// [lua.MaxParts]; 0 keeps a policy in one slot. Use it for a policy that is more than one shard
	// can carry, and whose rules have a key for each client. Write the number of primaries or a
	// small multiple of it: with fewer parts, more decisions share a call. Set the same number in
	// all programs that share quotas; a changed number resets them.
	//
	// Charges of a request whose keys are in one part are decided together, as without Spread.
	// Rules with the same key always are. Other parts are charged at the same time, and refunded if
	// a part refuses or fails. So a policy never admits more than its rules allow. The limitations:
	//   - A refused request holds its units in the other parts until they are refunded, a round trip or two
	//     later. Meanwhile other requests may be refused, with a RetryAfter as if the request had been
	//     admitted. A client over its own limit that sends many requests at once can so exhaust a small
	//     rule that all clients share. Keep such rules in a policy without Spread.
	//   - A refusal in one part is counted as a strike of a [core.Ban] in another by one more call, and a
	//     part that refuses counts it although a ban of another part refuses too. A value of
	//     [core.Distinct] that was known counts for a Window from such a refusal on.
	//   - A rule that all requests share has one key, on one shard.
	//   - A refusal costs two more calls for each part that had room, and as many
	//     round trips. Each has a Timeout of its own.
	//   - Buckets are refunded as exactly as [core.Return] says. A slot of a queue is refunded only while
	//     it is still ahead. A refused request with the id of a lease that is held ends that lease.
	//   - Units that cannot be refunded stay taken: see [Store.Unreturned].
	//   - Each server decides by its own clock, see [core.Decision.TimeOf]. The
	//     outcomes of several parts are not one snapshot.
	//   - Return, Renew and Release act on each part alone. An error says that one
	//     part failed, or may have; others may have succeeded.
	Spread int
}

// A Store is a [core.Store] on Redis. It is safe for concurrent use, runs no goroutine while it is
// idle, and does not close the client. Hooks of a [redis.Client], such as those for tracing, see
// its calls if the options of the client set ContextTimeoutEnabled: otherwise the store uses a copy
// without hooks.
//
// Each call is sent once. The client does not repeat a call whose reply is lost, since Redis may
// have counted it. Such a call returns an error, and may have taken its charges.
//
// When Redis was emptied or restarted, or another server took over, data may be lost. Then one
// Take, and all calls in flight, return an error that wraps [core.ErrForgotten]. Later calls go on
// with the data that is left. A package that keeps its own counts, such as guard, takes over from
// there.
//
// The store notices this by the server's run id, and by a token in the data: a key with a
// random value, on each server that it calls. It reads both at once before the first call,
// after a failed call, when the server does not know the script, and beside calls: after the
// client has opened or closed a connection, and once a second. A call that is the first for
// two seconds or more waits for that. So data that is lost while no call fails and no
// connection closes is noticed within a second, and an idle process does not trust it.
//
// If the Redis user may not run INFO, the token remains: a failover or a restart that loses
// only writes of the last second may go unnoticed. If the user may not run EVAL, or not use
// the key, the run id remains, and only a restart or a failover is noticed. If neither can be
// read, each call returns an error that says so and wraps [core.ErrUnavailable].
type Store struct {
	client    redis.UniversalClient
	deadlines bool // whether the client ends calls at the deadline of a context
	hasher    *keyHasher
	reach     atomic.Pointer[reach]
	adapts    bool   // whether the timeout is chosen by the distance
	id        string // of this process among those that share the keys: see Sharers

	calls      atomic.Int64 // the number of the last call, different in each store
	servers    sync.Map     // *server by address
	tokens     sync.Map     // the token that was last read, by its key
	anyKnown   atomic.Bool  // whether a server was identified
	anyFailure atomic.Bool  // whether a call has failed since
	restarts   atomic.Int64 // see Losses
	reported   atomic.Int64 // of restarts, to a caller of Take
	refreshed  atomic.Int64 // when the layout of the Cluster was last asked for
	refreshes  atomic.Int32 // in flight

	part                     // all keys, unless the store spreads
	parts      []part        // if it does
	slots      bool          // whether policies are in slots of a Cluster
	unreturned atomic.Int64  // see Unreturned
	now        func() string // empty except in tests: the server knows the time
	grace      int           // ms that keys outlive their last unit
}

var _ core.Store = (*Store)(nil)

// New returns a store on a client. A nil options means the zero Options. New panics on invalid
// options, on a nil client, on a [redis.Ring] and on a client that reads from replicas.
func New(client redis.UniversalClient, options *Options) *Store {
	checkClient(client)
	var o Options
	if options != nil {
		o = *options
	}
	if o.Timeout < 0 {
		panic(fmt.Sprintf("redisstore: Timeout %v: write how long a call may take, or 0 for %v", o.Timeout, defaultTimeout))
	}
	o.Prefix = cmp.Or(o.Prefix, "limit")
	if strings.ContainsAny(o.Prefix, "{}") {
		panic(fmt.Sprintf("redisstore: Prefix %q: braces mark the slot of a Cluster: write it without them", o.Prefix))
	}
	s := &Store{
		hasher: newKeyHasher(o.Secret),
		adapts: o.Timeout == 0,
		id:     processID,
		now:    func() string { return "" },
		grace:  1, // Redis expires by a clock in whole ms
	}
	s.reach.Store(newReach(cmp.Or(o.Timeout, defaultTimeout), 0))
	s.part.setUp(s, o.Prefix, maxPolicies)
	if o.Spread != 0 {
		s.spread(o.Spread)
	}
	s.calls.Store(rand.Int64N(1 << 52)) // exact in Lua
	s.client, s.deadlines = withDeadlines(client, s.longest())
	_, s.slots = s.client.(*redis.ClusterClient)
	return s
}

// Take implements [core.Store]. On a Cluster, charges of different policies in one call are in
// different slots: they are decided like the parts of [Options].Spread, with the same limitations.
//
// If ctx ends while the decision is queued, nothing is taken; if it ends during the call, the
// outcome is unknown. A lone decision ends at the deadline of ctx, but may notice a cancellation
// only when its call ends. A store with [Options.Spread] refunds what parts are known to have
// taken, also after ctx has ended.
//
// If ctx has ended, the error is that of ctx, or wraps it. Errors that do not depend on the
// request wrap [core.ErrUnavailable].
func (s *Store) Take(ctx context.Context, asks []core.Ask) error {
	if err := cmp.Or(core.ValidateAsks(asks), ctx.Err()); err != nil {
		return err
	}
	if s.reported.Load() != s.restarts.Load() {
		return s.report(errForgotten)
	}
	err := s.take(ctx, asks)
	if err == nil && s.reported.Load() != s.restarts.Load() {
		err = errForgotten // noticed meanwhile by a call that has not reported it yet
	}
	return s.report(err)
}

func (s *Store) take(ctx context.Context, asks []core.Ask) error {
	if asks[0].Owes() {
		return s.owe(ctx, asks)
	}
	if p := s.single(asks); p != nil {
		return p.batcher(asks).take(ctx, asks)
	}
	return s.takeSpread(ctx, asks)
}

// Losses returns how often a server was found to be another one, to have been restarted or to have
// lost data, which one Take reports by [core.ErrForgotten]. A guard beside the one whose call that
// was learns of it so.
func (s *Store) Losses() int64 { return s.restarts.Load() }

// decide runs the script for a batch of requests, the one for keys that several algorithms charge,
// or the one for a lone request. It also returns whether the last has left it to the script for
// batches.
func (s *Store) decide(ctx context.Context, rules *lua.Rules, batch [][]core.Ask, tallied *lua.Script, lone bool) (
	reply []int64, left bool, err error) {
	script, encode := rules.Script, rules.Encode
	if tallied != nil {
		script, encode = tallied, rules.EncodeTallied
	}
	keys, args := encode(s.now(), s.grace, batch)
	var end time.Time
	if lone {
		c := &invocation{script: rules.One, keys: keys, args: args}
		if reply, err = s.numbered(ctx, c, batch[0]); err != nil || !lua.Left(reply) {
			return reply, false, err
		}
		end = c.end
	}
	c := &invocation{script: script, keys: keys, args: args, span: span{end: end}}
	reply, err = s.numbered(ctx, c, batch[0])
	return reply, lone, err
}

// numbered runs a script whose call and reply end with the number of the call, and returns
// the reply without it. The error of a call without an answer is about some asks of it.
func (s *Store) numbered(ctx context.Context, c *invocation, of []core.Ask) ([]int64, error) {
	number := s.calls.Add(1)
	c.args, c.timed = append(c.args, number), s.now() == ""
	reply, err := s.run(ctx, c)
	last := len(reply) - 1
	switch {
	case err != nil:
	case last < 0 || reply[last] != number:
		err = errWrongReply
	case c.late(reply):
		err = errLate
	default:
		return reply[:last], nil
	}
	return nil, unanswered(err, of, c.end, c.uncertainty.Load())
}

// errWrongReply is about replies out of order. Clients and proxies have mixed them up
// (CVE-2025-29923): without the number, a request would get another's decision.
var errWrongReply = fmt.Errorf("%w: the reply belongs to another call", core.ErrOutOfReach)
