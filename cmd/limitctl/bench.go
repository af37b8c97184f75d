package main

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/cmd/limitctl/internal/bench"
	"github.com/routelimit/limit/cmd/limitctl/internal/redisclient"
	"github.com/routelimit/limit/lua"
	"github.com/routelimit/limit/ops/policyfile"
)

// A benchmark is the arguments of limitctl bench.
type benchmark struct {
	url, policy, rules string
	cluster, json, yes bool
	callers            string
	options            bench.Options
}

const (
	defaultRules = "100/1m per ip; 10000/1m global"
	maxCallers   = 10_000
	maxClients   = 1_000_000
)

func newBenchCommand() *cobra.Command {
	var b benchmark
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure how many decisions a second a Redis makes, and what limits it",
		Long: `Measure how many decisions a second a Redis makes, how long they take, and what
limits it: the round trip, the CPU of Redis, or the CPU of this machine.

It loads the Redis as much as it can, so other programs on it are slower meanwhile, and
asks before it begins. It decides with the library as your programs do, on keys that
begin with limit-bench- and a random number, and deletes them in the end. The windows of
the rules are shortened so that no request is refused, since refusals are remembered by
the program and cost Redis nothing.

Run it on the machine of the program, since the round trip is that of the caller. On a
Cluster, a policy is on one shard, and so one shard is measured, unless --spread or
several policies use more.

The exit code is 0 if all was measured, 1 if Redis failed, keys could not be deleted or
the command was interrupted, 2 if you did not confirm, and 3 for wrong arguments.`,
		Example: `  limitctl bench --redis redis://127.0.0.1:6379
  limitctl bench --redis redis://127.0.0.1:6379 --rules "100/1m per ip; 5/1s per user"
  limitctl bench --redis redis://127.0.0.1:7000 --cluster --policy policy.yaml --yes --json
  limitctl bench --redis redis://127.0.0.1:6379 --callers 1,500 --clients 100000 --time 1m`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return b.run(cmd)
		},
	}
	f := cmd.Flags()
	redisFlag(cmd, &b.url, "the Redis")
	f.BoolVar(&b.cluster, "cluster", false, "the Redis is a Cluster, and the URL is one of its nodes")
	f.StringVar(&b.policy, "policy", "", "a policy `file`, whose policies decide in turn")
	f.StringVar(&b.rules, "rules", "", "`rules` instead of a file; default \""+defaultRules+"\"")
	f.DurationVar(&b.options.Time, "time", 10*time.Second, "how long to measure, in all")
	f.IntVar(&b.options.Clients, "clients", 1000, "how many different clients send requests; a last run has one client")
	f.StringVar(&b.callers, "callers", "", "how many callers decide at once, such as 64 or 1,8,64; default 1, 4, 16, 64, 256, until the throughput grows by less than 10 %")
	f.DurationVar(&b.options.Timeout, "timeout", 100*time.Millisecond, "redisstore.Options.Timeout of the programs")
	f.IntVar(&b.options.Spread, "spread", 0, "redisstore.Options.Spread of the programs")
	f.BoolVar(&b.json, "json", false, "print JSON")
	f.BoolVar(&b.yes, "yes", false, "do not ask before the load begins")
	return cmd
}

// check returns an error for arguments that do not fit.
func (b *benchmark) check() error {
	o := &b.options
	switch {
	case b.url == "":
		return errors.New("name the Redis: write limitctl bench --redis redis://127.0.0.1:6379, or set LIMITCTL_REDIS")
	case b.policy != "" && b.rules != "":
		return errors.New("--policy and --rules: write one of them")
	case o.Time < 100*time.Millisecond || o.Time > time.Hour:
		return fmt.Errorf("--time %v: write 100ms to 1h", o.Time)
	case o.Clients < 1 || o.Clients > maxClients:
		return fmt.Errorf("--clients %d: write 1 to %d", o.Clients, maxClients)
	case o.Timeout < time.Millisecond || o.Timeout > time.Minute:
		return fmt.Errorf("--timeout %v: write 1ms to 1m", o.Timeout)
	case o.Spread < 0 || o.Spread > lua.MaxParts:
		return fmt.Errorf("--spread %d: write 1 to %d, or 0 for none", o.Spread, lua.MaxParts)
	case o.Spread > 0 && !b.cluster:
		return errors.New("--spread: a policy is spread over a Cluster: write --cluster as well")
	}
	return b.readCallers()
}

// readCallers reads --callers.
func (b *benchmark) readCallers() error {
	b.options.Callers = nil
	if b.callers == "" {
		return nil
	}
	for text := range strings.SplitSeq(b.callers, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || n < 1 || n > maxCallers {
			return fmt.Errorf("--callers %s: %s is not a number from 1 to %d: write numbers and commas, such as --callers 1,8,64", shown(b.callers), shown(text), maxCallers)
		}
		b.options.Callers = append(b.options.Callers, n)
	}
	if n := len(b.options.Callers); n > 20 {
		return fmt.Errorf("--callers: %d numbers: write at most 20", n)
	}
	return nil
}

// readRules reads the policies that decide.
func (b *benchmark) readRules() error {
	if b.policy == "" {
		rules, err := limit.Parse(cmp.Or(b.rules, defaultRules))
		if err != nil {
			return usageError{fmt.Errorf("--rules: %w", err)}
		}
		return b.add("bench", rules)
	}
	f, err := policyfile.Read(b.policy)
	if err != nil {
		return printable(err)
	}
	for _, p := range f.Policies() {
		if len(p.Rules.Rules()) == 0 {
			continue // it has none until they are pushed
		}
		if err := b.add(p.Name, p.Rules); err != nil {
			return err
		}
	}
	if len(b.options.Policies) == 0 {
		return printable(fmt.Errorf("--policy %q: no policy has rules: name a file with at least one", b.policy))
	}
	return nil
}

func (b *benchmark) add(name string, rules limit.RuleSet) error {
	p, err := bench.NewPolicy(name, rules.Rules())
	if err != nil {
		return usageError{err}
	}
	b.options.Policies = append(b.options.Policies, p)
	return nil
}

func (b *benchmark) run(cmd *cobra.Command) error {
	if err := b.check(); err != nil {
		return usageError{err}
	}
	if err := b.readRules(); err != nil {
		return err
	}
	client, err := redisclient.Open(b.url, b.cluster)
	if err != nil {
		return usageError{err}
	}
	defer client.Close()
	admin, err := redisclient.Open(b.url, b.cluster) // beside the load, which may use all connections of its own
	if err != nil {
		return usageError{err}
	}
	defer admin.Close()
	ctx := cmd.Context()
	if err := admin.Ping(ctx).Err(); err != nil {
		return printable(redisclient.Explain(fmt.Errorf("no answer from Redis: %w", err)))
	}
	server := bench.Describe(ctx, admin)
	if err := confirm(cmd, b.yes, "This loads %s for up to %v.\n%sPrograms that use it are slower meanwhile.\n", server, b.options.Time, server.Before()); err != nil {
		return err
	}
	if b.yes && !b.json {
		fmt.Fprintf(cmd.ErrOrStderr(), "Loads %s for up to %v.\n", server, b.options.Time)
	}
	if !b.json {
		b.options.Progress = cmd.ErrOrStderr()
	}
	result, err := bench.Measure(ctx, client, admin, b.options)
	if result == nil {
		return printable(err)
	}
	print := result.Text
	if b.json {
		print = result.JSON
	}
	return errors.Join(print(cmd.OutOrStdout()), printable(err))
}
