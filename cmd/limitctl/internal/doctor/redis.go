package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/routelimit/limit/cmd/limitctl/internal/redisclient"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/redisfacts"
	"github.com/routelimit/limit/lua"
)

// RedisFacts describe a Redis.
type RedisFacts struct {
	Prefix  string // of the keys
	TLS     bool
	DB      int
	Cluster bool // whether --cluster was given
	Nodes   []Node

	Keys Keys
}

// A Node is one server. A field that could not be read is empty, and the error
// beside it says why.
type Node struct {
	Addr    string
	Replica bool   // it was listed as a replica of another node
	Flags   string // in CLUSTER NODES, such as "master,fail?"
	Err     string // why it does not answer

	Info      map[string]string // INFO
	InfoErr   error
	Config    map[string]string // CONFIG GET
	ConfigErr error

	ClusterInfo map[string]string // CLUSTER INFO
	ClusterErr  error
	Migrating   int // slots that migrate from or to it

	// Offset is how far its clock is ahead of that of this machine, give or take
	// Uncertainty.
	Offset, Uncertainty time.Duration
	TimeErr             error

	Ping, Script       []time.Duration // of calls, in order of size
	PingErr, ScriptErr error

	User   string // empty if unknown
	Rights redisfacts.Rights

	client *redis.Client
}

// RedisOptions name a Redis.
type RedisOptions struct {
	redisclient.Address
	Prefix string // of the keys; empty means "limit"
	Keys   int    // how many keys to check, at most
}

// Redis asks a Redis and its other nodes. It writes nothing. An error is about the
// options; that a server does not answer is a fact.
func Redis(ctx context.Context, o RedisOptions) (*RedisFacts, error) {
	if err := redisclient.CheckPrefix("--prefix", o.Prefix); err != nil {
		return nil, err
	}
	if o.Keys < 0 {
		return nil, fmt.Errorf("--keys %d: write how many to check, or 0 for none", o.Keys)
	}
	o.Prefix = cmp.Or(o.Prefix, "limit")
	base, err := o.Server(ctx)
	switch {
	case errors.Is(err, redisclient.ErrNoSentinel):
		nodes := []Node{{Addr: "Sentinel", Err: err.Error()}}
		return &RedisFacts{Prefix: o.Prefix, Nodes: nodes, Keys: scan(ctx, nodes, o)}, nil
	case err != nil:
		return nil, err
	}
	facts := &RedisFacts{Prefix: o.Prefix, TLS: base.TLSConfig != nil, DB: base.DB, Cluster: o.Cluster}
	facts.Nodes = []Node{{Addr: base.Addr}}
	for i := 0; i < len(facts.Nodes); i++ {
		client := dial(base, facts.Nodes[i].Addr)
		defer client.Close()
		facts.Nodes[i].client = client
		examine(ctx, o.Prefix, &facts.Nodes[i])
		if i == 0 {
			facts.Nodes = append(facts.Nodes, others(ctx, &facts.Nodes[0], o.Cluster)...)
		}
	}
	facts.Keys = scan(ctx, facts.Nodes, o)
	return facts, nil
}

// dial returns a client of one node, without retries and with short timeouts.
func dial(base *redis.Options, addr string) *redis.Client {
	o := &redis.Options{
		Addr: addr, Username: base.Username, Password: base.Password, DB: base.DB, TLSConfig: base.TLSConfig, Dialer: base.Dialer,
		DialTimeout: 2 * time.Second, ReadTimeout: 3 * time.Second, WriteTimeout: 3 * time.Second,
		ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1, PoolSize: 1,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if addr == base.Addr {
		o.Network = base.Network
	}
	return redis.NewClient(o)
}

// examine fills in the facts of a node, within 30 s.
func examine(ctx context.Context, prefix string, n *Node) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	client := n.client
	// A server that refuses a command to a user that it knows answers.
	if err := client.Ping(ctx).Err(); err != nil && !redis.HasErrorPrefix(err, "NOPERM") && !redisfacts.Unknown(err) {
		n.Err = redisclient.Explain(err, "", false).Error()
		return
	}
	n.Info, n.InfoErr = redisfacts.Info(ctx, client)
	askConfig(ctx, n)
	if n.Info["cluster_enabled"] != "0" {
		var text string
		if text, n.ClusterErr = client.ClusterInfo(ctx).Result(); n.ClusterErr == nil {
			n.ClusterInfo = redisfacts.Lines(text)
		}
	}
	n.Offset, n.Uncertainty, n.TimeErr = redisfacts.Clock(ctx, client)
	n.Ping, n.PingErr = measure(func() error { return client.Ping(ctx).Err() })
	if !n.replica() {
		askScript(ctx, prefix, n)
	}
}

// measure returns how long 50 calls take, sorted. It stops after five seconds, and at the
// first error.
func measure(call func() error) (took []time.Duration, err error) {
	begin := time.Now()
	for len(took) < 50 && time.Since(begin) < 5*time.Second {
		start := time.Now()
		if err := call(); err != nil {
			return nil, err
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	return took, nil
}

// settings lists the settings that checks use. Others are not read, since some are
// passwords.
var settings = []string{"maxmemory", "maxmemory-policy", "save", "appendonly", "appendfsync", "stop-writes-on-bgsave-error",
	"min-replicas-to-write", "min-replicas-max-lag", "maxclients", "timeout"}

func askConfig(ctx context.Context, n *Node) {
	replies := make([]*redis.MapStringStringCmd, len(settings))
	// Each reply has its own error.
	_, _ = n.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, name := range settings { // Redis 6.2 reads one at a time
			replies[i] = p.ConfigGet(ctx, name)
		}
		return nil
	})
	config := make(map[string]string)
	for _, r := range replies {
		if err := r.Err(); err != nil {
			n.ConfigErr = err
			continue
		}
		maps.Copy(config, r.Val())
	}
	if len(config) > 0 {
		n.Config, n.ConfigErr = config, nil
	}
}

// others returns the other nodes of a Cluster, or the replicas of a primary.
func others(ctx context.Context, n *Node, cluster bool) []Node {
	if n.Err != "" {
		return nil
	}
	if cluster {
		text, err := n.client.ClusterNodes(ctx).Result()
		if err != nil {
			n.ClusterErr = cmp.Or(n.ClusterErr, err)
			return nil
		}
		return clusterNodes(text, n)
	}
	var found []Node
	for name, value := range n.Info {
		number, ok := strings.CutPrefix(name, "slave")
		if r := fields(value); ok && number != "" && strings.Trim(number, "0123456789") == "" && r["ip"] != "" {
			found = append(found, Node{Addr: net.JoinHostPort(r["ip"], r["port"]), Replica: true})
		}
	}
	slices.SortFunc(found, byAddr)
	return found
}

// clusterNodes reads the CLUSTER NODES of self, and returns the other nodes. It fills
// in the flags of self.
func clusterNodes(text string, self *Node) []Node {
	var found []Node
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 8 {
			continue
		}
		at, _, _ := strings.Cut(words[1], "@")
		i := strings.LastIndexByte(at, ':')
		flags := words[2]
		if i < 0 || strings.Contains(flags, "noaddr") || strings.Contains(flags, "handshake") {
			continue
		}
		migrating := 0
		for _, slots := range words[8:] {
			if strings.HasPrefix(slots, "[") {
				migrating++
			}
		}
		node := Node{Addr: net.JoinHostPort(strings.Trim(at[:i], "[]"), at[i+1:]), Flags: flags,
			Replica: strings.Contains(flags, "slave"), Migrating: migrating}
		if rest, mine := strings.CutPrefix(flags, "myself,"); mine {
			self.Flags, self.Replica, self.Migrating = rest, node.Replica, migrating
			continue
		}
		found = append(found, node)
	}
	slices.SortFunc(found, byAddr)
	return found
}

func byAddr(a, b Node) int { return strings.Compare(a.Addr, b.Addr) }

// askScript runs the library's script as a program does. Then it asks what the user may do.
func askScript(ctx context.Context, prefix string, n *Node) {
	charge := core.Charge{Policy: "limitctl doctor", Rule: "doctor", Key: "doctor", Quota: core.Quota{Limit: 1, Window: time.Second.Microseconds()}}
	n.ScriptErr = decide(ctx, n.client, prefix, charge)
	for i := 1; redis.HasErrorPrefix(n.ScriptErr, "MOVED"); i++ { // the slot is on another node
		if i > 500 {
			n.ScriptErr = errors.New("found no policy with a slot on this node")
			n.Rights.Err = n.ScriptErr
			return
		}
		charge.Policy = fmt.Sprint("limitctl doctor ", i)
		n.ScriptErr = decide(ctx, n.client, prefix, charge)
	}
	if n.ScriptErr == nil {
		n.Script, n.ScriptErr = measure(func() error { return decide(ctx, n.client, prefix, charge) })
	}
	n.User, _ = n.client.Do(ctx, "ACL", "WHOAMI").Text() // which may be refused
	n.Rights = redisfacts.Ask(ctx, n.client, lua.Key(prefix, &charge))
	switch {
	case n.Rights.Of == nil:
	case n.InfoErr == nil:
		n.Rights.Of["INFO"] = ""
	case redisfacts.NoRight(n.InfoErr.Error()):
		n.Rights.Of["INFO"] = n.InfoErr.Error()
	}
}

// decide decides on a charge of cost 0, which writes nothing.
func decide(ctx context.Context, client *redis.Client, prefix string, charge core.Charge) error {
	asks := []core.Ask{{Charges: []core.Charge{charge}}}
	rules := lua.NewRules(prefix, asks)
	keys, args := rules.Encode("", 1, [][]core.Ask{asks})
	args = append(args, 0) // the number of the call
	run := func(script *lua.Script) ([]int64, error) {
		reply, err := client.EvalSha(ctx, script.SHA, keys, args...).Int64Slice()
		if redis.HasErrorPrefix(err, "NOSCRIPT") {
			reply, err = client.Eval(ctx, script.Text, keys, args...).Int64Slice()
		}
		return reply[:max(0, len(reply)-1)], err
	}
	reply, err := run(rules.One)
	if err == nil && lua.Left(reply) {
		reply, err = run(rules.Script)
	}
	if err != nil {
		return err
	}
	var undecided error
	err = rules.Decode(reply, [][]core.Ask{asks}, func(_ int, err error) { undecided = err })
	return cmp.Or(err, undecided)
}
