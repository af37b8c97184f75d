package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/notice"
	"github.com/routelimit/limit/internal/redisfacts"
	"github.com/routelimit/limit/lua"
)

// checkTimeout bounds a check. It is above the pauses that requests do not wait for.
const checkTimeout = 5 * time.Second

// Check asks Redis, or each primary of a Cluster, whether it can decide: whether it can be reached
// and written, whether its user may run what the store needs, what it does when memory is full, and
// how far its clock is from that of this machine. The error joins one [*core.Diagnosis] for each
// problem. Those of servers that cannot be reached wrap [core.ErrUnavailable].
//
// Check changes no key. It ends with ctx and after 5 s. If ctx is canceled, the error is
// that of ctx. limitctl doctor checks more.
func (s *Store) Check(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	key, began := lua.Key(s.prefix, &core.Charge{Policy: "check", Rule: "check"}), ticks()
	defer time.AfterFunc(probeAfter, func() { _ = s.probe(bounded, key) }).Stop() // tells a full pool from a dead server
	err := detached(bounded, func() error { return s.check(bounded) })            // since a client may ignore its context
	if err != nil && err == bounded.Err() {
		err = &core.Diagnosis{Code: notice.Unreachable, Err: fmt.Errorf("redisstore: %w: Redis did not answer a check in time: %w",
			core.ErrUnavailable, bounded.Err())}
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, redis.ErrPoolTimeout) {
		err = cmp.Or(s.blocked(key, began), err)
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	return err
}

func (s *Store) check(ctx context.Context) error {
	var found problems
	switch client := s.client.(type) {
	case *redis.ClusterClient:
		var primaries atomic.Int64
		err := client.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			primaries.Add(1)
			s.checkServer(ctx, node, node.Options(), &found)
			return nil
		})
		if err == nil && primaries.Load() == 0 {
			err = errors.New("it serves no slots")
		}
		if err != nil {
			found.add("the Cluster", notice.Unreachable, unreachable(err))
		}
	case *redis.Client:
		s.checkServer(ctx, client, client.Options(), &found)
	default:
		s.checkServer(ctx, client, &redis.Options{Addr: "server"}, &found)
	}
	return found.err()
}

// checkServer adds what is wrong with a server that decides.
func (s *Store) checkServer(ctx context.Context, client redis.UniversalClient, o *redis.Options, found *problems) {
	add := func(code string, err error) { found.add(o.Addr, code, err) }
	info, err := redisfacts.Info(ctx, client)
	if err != nil && !isRefused(err) {
		add(notice.Unreachable, unreachable(err))
		return
	}
	user := userOf(client)
	rights := s.rights(ctx, client)
	if rights.Err != nil {
		add(notice.Unreachable, unreachable(rights.Err))
		return
	}
	if err != nil && redisfacts.NoRight(err.Error()) || redisfacts.Unknown(err) && rights.WriteErr == "" {
		add(notice.NoInfo, fmt.Errorf("user %q may not run INFO, so it is unknown whether Redis evicts keys, and a failover "+
			"that loses writes goes unnoticed: redis-cli ACL SETUSER %s +info", user, user))
	}
	if primary := info["master_host"]; rights.WriteErr != "" || info["role"] == "slave" {
		if primary != "" {
			primary = ", " + primary + ":" + info["master_port"]
		}
		add(notice.RefusesWrites, unwritable(rights.WriteErr, primary))
	}
	if refused := rights.Refused(); refused != nil {
		add(notice.NoPermission, s.errNoRight(client, refused, s.prefix+":"))
	}
	if evicts, _ := redisfacts.Eviction(info["maxmemory_policy"], info["maxmemory"]); evicts {
		add(notice.Evicts, fmt.Errorf("it evicts keys when memory is full (maxmemory-policy %s), and an evicted key is a reset quota: "+
			"redis-cli CONFIG SET maxmemory-policy noeviction", info["maxmemory_policy"]))
	}
	if rights.Of["TIME"] == "" {
		offset, uncertainty, err := redisfacts.Clock(ctx, client)
		if off := offset.Abs(); err == nil && off-uncertainty > redisfacts.MaxOffset {
			word := "ahead of"
			if offset < 0 {
				word = "behind"
			}
			add(notice.Clock, fmt.Errorf("its clock is %v %s that of this machine, and calendar windows begin by it: run NTP on both",
				off.Round(time.Millisecond), word))
		}
	}
}

// rights tries the commands of a decision on a key of the server, and on its token.
func (s *Store) rights(ctx context.Context, client redis.UniversalClient) (r redisfacts.Rights) {
	var key string
	for try := range 500 { // until the slot of a key is on this server
		key = lua.Key(s.prefix, &core.Charge{Policy: fmt.Sprint("check ", try), Rule: "check", Key: "check"})
		r = redisfacts.Ask(ctx, client, key)
		if !redis.HasErrorPrefix(r.Err, "MOVED") {
			break
		}
	}
	if r.Err == nil && r.Refused() == nil {
		r = redisfacts.Ask(ctx, client, lua.TokenKey(s.prefix, key))
	}
	return r
}

// unreachable returns an error about a server that does not decide now.
func unreachable(err error) error {
	code, _, replied := replyOf(err)
	fix := "start it, let this machine connect to it, or correct the address of the client"
	switch {
	case code == "NOAUTH", code == "WRONGPASS", strings.Contains(err.Error(), "invalid password"):
		fix = "write its Username and Password into the options of the client"
	case replied:
		fix = "wait until it can decide"
	}
	if !errors.Is(err, core.ErrUnavailable) {
		err = fmt.Errorf("%w: %w", core.ErrUnavailable, err)
	}
	return fmt.Errorf("%w: %s", err, fix)
}

// unwritable returns an error about a server that refuses writes, or is a replica.
func unwritable(reason, primary string) error {
	code, _, _ := strings.Cut(reason, " ")
	switch code {
	case "READONLY", "":
		return fmt.Errorf("it is a replica: give the client the address of the primary%s", primary)
	case "MISCONF":
		return fmt.Errorf("it cannot write to its disk, and so refuses writes: free space on the disk, or correct its directory (%s)", reason)
	case "OOM":
		return fmt.Errorf("its memory is full, so it refuses writes: raise maxmemory (%s)", reason)
	case "NOREPLICAS":
		return fmt.Errorf("it has fewer replicas in sync than min-replicas-to-write: bring them back (%s)", reason)
	}
	if strings.HasPrefix(reason, unknownCommand) {
		return fmt.Errorf("it runs no scripts: give the client the address of a Redis, not of a Sentinel or a proxy, and rename no command (%s)", reason)
	}
	return fmt.Errorf("it refuses writes: %s", reason)
}

// problems are what is wrong with servers. Servers with the same problem share an error.
type problems struct {
	mu  sync.Mutex
	all []problem
}

type problem struct {
	code    string
	err     error
	servers []string
}

func (p *problems) add(server, code string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	same := func(o problem) bool { return o.code == code && o.err.Error() == err.Error() }
	i := slices.IndexFunc(p.all, same)
	if i < 0 {
		i = len(p.all)
		p.all = append(p.all, problem{code: code, err: err})
	}
	p.all[i].servers = append(p.all[i].servers, server)
}

// err joins a Diagnosis for each problem, in the order of codes.
func (p *problems) err() error {
	slices.SortStableFunc(p.all, func(a, b problem) int { return strings.Compare(a.code, b.code) })
	var errs []error
	for _, o := range p.all {
		slices.Sort(o.servers)
		errs = append(errs, &core.Diagnosis{Code: o.code, Err: fmt.Errorf("redisstore: Redis %s: %w", strings.Join(o.servers, ", "), o.err)})
	}
	return errors.Join(errs...)
}
