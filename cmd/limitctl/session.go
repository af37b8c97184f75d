package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/cmd/limitctl/internal/live"
	"github.com/routelimit/limit/cmd/limitctl/internal/redisclient"
	"github.com/routelimit/limit/internal/clientip"
	"github.com/routelimit/limit/ops/access"
	"github.com/routelimit/limit/ops/control"
	"github.com/routelimit/limit/ops/overrides"
	"github.com/routelimit/limit/ops/policyfile"
	"github.com/routelimit/limit/rules"
)

// deployment is the flags that say which programs an operator means: their Redis, and
// their rules.
type deployment struct {
	connection
	subject
	controlPrefix          string
	file, name, secret, by string
	rules, on              []string
	spread, ipv6           int
	list, json             bool
}

// flags adds those of the Redis and, for commands that need them, of the rules.
func (d *deployment) flags(cmd *cobra.Command, ofRules bool) {
	f := cmd.Flags()
	d.connection.flags(cmd, "`prefix` of keys: redisstore.Options.Prefix and control.Options.Prefix of the programs")
	f.StringVar(&d.controlPrefix, "control-prefix", "", "control.Options.Prefix of the programs, if it is another `prefix`")
	f.BoolVar(&d.json, "json", false, "print JSON")
	if !ofRules {
		return
	}
	d.subject.flags(cmd)
	f.StringVar(&d.file, "file", "", "the policy `file` of the programs; without it and --rules, the pushed file")
	f.StringVar(&d.name, "name", "policies", "policyfile.Options.Name of the programs, whose pushed file says the rules")
	f.StringArrayVar(&d.rules, "rules", nil, "`rules` that are in code, such as \"5/2s per ip\"; may be repeated, each with its --on")
	f.StringArrayVar(&d.on, "on", nil, "the `policy` of --rules: its name, \"POST /update\", or \"each GET /items\" for limit.EachRoute")
	f.StringVar(&d.secret, "secret-env", "", "the environment `variable` that holds redisstore.Options.Secret of the programs")
	f.IntVar(&d.spread, "spread", 0, "redisstore.Options.Spread of the programs")
	f.IntVar(&d.ipv6, "ipv6-prefix", 0, "limit.Proxies.IPv6Prefix of the programs, in `bits`")
	_ = cmd.RegisterFlagCompletionFunc("on", cobra.NoFileCompletions)
	_ = cmd.RegisterFlagCompletionFunc("rules", func(_ *cobra.Command, _ []string, text string) ([]string, cobra.ShellCompDirective) {
		return rules.Complete(text), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	})
}

// A subject is the flags that name policies, rules and a key.
type subject struct{ policy, rule, key string }

func (s *subject) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.policy, "policy", "", "the `name` of a policy: that of limit.Named or a policy file, or a route such as \"POST /login\"")
	f.StringVar(&s.rule, "rule", "", "the `name` of a rule, such as per-ip-1m")
	f.StringVar(&s.key, "key", "", "a `key`: an address, a user, or another one as limitctl top shows it")
}

// matches reports whether the flags name a key of a rule, or no other one.
func (s *subject) matches(policy, rule, key string) bool {
	return (s.policy == "" || s.policy == policy) && (s.rule == "" || s.rule == rule) && (s.key == "" || s.means(key))
}

// means reports whether requests with the value that --key names may have a key: the value, the
// prefix of an address, or an alternative of a key.
func (s *subject) means(key string) bool {
	if s.key == key {
		return true
	}
	if number, rest, found := strings.Cut(key, "="); found {
		if _, err := strconv.ParseUint(number, 10, 8); err == nil {
			return s.means(rest)
		}
	}
	_, text, _ := strings.Cut(key, "/")
	bits, _ := strconv.Atoi(text)
	return key != "" && key == clientip.Key(s.key, bits)
}

// A session is a deployment that has been found.
type session struct {
	client    redis.UniversalClient
	control   *control.Control
	overrides *overrides.Overrides
	limits    *live.Limits
	prefix    string // of keys
	source    string // of the rules; "" if there are none
}

// quiet is the log of packages whose messages are for programs.
var quiet = slog.New(slog.DiscardHandler)

// session opens a Redis, which has not connected yet. controlPrefix is that of package control.
func (c *connection) session(controlPrefix string) (*session, error) {
	client, err := c.dial()
	if err != nil {
		return nil, err
	}
	return &session{client: client, control: control.New(client, &control.Options{Prefix: controlPrefix, Log: quiet})}, nil
}

func (s *session) end() { s.client.Close() }

// connect opens the Redis, without rules.
func (d *deployment) connect() (*session, error) {
	if err := redisclient.CheckPrefix("--control-prefix", d.controlPrefix); err != nil {
		return nil, usageError{err}
	}
	return d.session(cmp.Or(d.controlPrefix, d.prefix))
}

// open opens the Redis, and finds the overrides and the rules. hashed says that keys are the
// names in Redis, which a Secret has already made hashes, or that none is looked up.
func (d *deployment) open(cmd *cobra.Command, hashed bool) (*session, error) {
	policies, source, err := d.read()
	if err != nil {
		return nil, err
	}
	o := live.Options{Prefix: cmp.Or(d.prefix, "limit"), Spread: d.spread, IPv6Prefix: d.ipv6}
	if d.secret != "" && !hashed {
		if o.Secret = []byte(os.Getenv(d.secret)); len(o.Secret) == 0 {
			return nil, usageError{fmt.Errorf("--secret-env %s: the variable is not set, or empty: set it to the Secret of the programs", d.secret)}
		}
	}
	s, err := d.connect()
	if err != nil {
		return nil, err
	}
	err = s.readOverrides(cmd.Context())
	if err == nil && policies == nil {
		if policies, source, err = d.pushed(cmd.Context(), s.control); d.list {
			err = nil // a list needs no rules
		}
	}
	if err == nil {
		o.Override, s.prefix, s.source = s.overrides.Limit, o.Prefix, source
		if s.limits, err = live.New(s.client, policies, o); err != nil {
			err = usageError{err}
		}
	}
	if err != nil {
		s.end()
		return nil, err
	}
	return s, nil
}

// read returns the policies that flags name; nil if there are none.
func (d *deployment) read() (policies []live.Policy, source string, err error) {
	var sources []string
	if d.file != "" {
		f, err := policyfile.Read(d.file)
		if err != nil {
			return nil, "", err
		}
		policies, sources = policiesOf(f), append(sources, d.file)
	}
	if len(d.rules) != len(d.on) {
		return nil, "", usageError{fmt.Errorf("%d --rules and %d --on: write both for each policy, such as --rules \"5/2s per ip\" --on \"POST /update\"", len(d.rules), len(d.on))}
	}
	for i, text := range d.rules {
		rules, err := limit.Parse(text)
		if err != nil {
			return nil, "", usageError{fmt.Errorf("--rules: %w", err)}
		}
		p := live.Policy{Name: d.on[i], Rules: rules}
		p.Name, p.Each = strings.CutPrefix(p.Name, "each ")
		policies = append(policies, p)
	}
	if len(d.rules) > 0 {
		sources = append(sources, "the command line")
	}
	return policies, strings.Join(sources, " and "), nil
}

// policiesOf returns the policies of a file; it is not nil if there are none.
func policiesOf(f *policyfile.File) []live.Policy {
	policies := []live.Policy{}
	for _, p := range f.Policies() {
		policies = append(policies, live.Policy{Name: p.Name, Rules: p.Rules})
	}
	return policies
}

// pushed returns the policies of the file that is pushed, if there is one.
func (d *deployment) pushed(ctx context.Context, c *control.Control) ([]live.Policy, string, error) {
	files, err := policyfile.Pushed(ctx, c)
	f := files[d.name]
	switch {
	case f != nil:
		return policiesOf(f), fmt.Sprintf("the pushed file %q", d.name), nil
	case err != nil:
		return nil, "", err
	case len(files) > 0:
		return nil, "", usageError{fmt.Errorf("nothing is pushed as %q: write --name %s, or name the rules by --file or --rules",
			d.name, strings.Join(slices.Sorted(maps.Keys(files)), " or --name "))}
	}
	return nil, "", nil
}

func (s *session) readOverrides(ctx context.Context) (err error) {
	s.overrides, err = overrides.Read(ctx, s.control, &overrides.Options{Log: quiet})
	return err
}

func (s *session) bans(ctx context.Context) (*access.Bans, error) {
	return access.ReadBans(ctx, s.control, &access.Options{Log: quiet})
}

// A connection is the flags that name the Redis of programs.
type connection struct {
	redisclient.Address
	prefix string
}

// flags adds them. A flag that is not written has the value of a variable of the
// environment. That is not its default, since --help would show a password.
func (c *connection) flags(cmd *cobra.Command, prefix string) {
	f := cmd.Flags()
	f.StringVar(&c.URL, "redis", "", "`URL` of the Redis of the programs, such as redis://user:password@127.0.0.1:6379/0, rediss:// for TLS, or unix:///path/to/redis.sock; "+
		"without it, LIMITCTL_REDIS of the environment")
	c.Address.Flags(f)
	f.StringVar(&c.prefix, "prefix", "limit", prefix+"; without it, LIMITCTL_PREFIX of the environment")
	cmd.PreRun = func(*cobra.Command, []string) {
		if text := os.Getenv(redisclient.URLVariable); text != "" && !f.Changed("redis") {
			c.URL = text
		}
		if text := os.Getenv("LIMITCTL_PREFIX"); text != "" && !f.Changed("prefix") {
			c.prefix = text
		}
	}
}

// dial returns a client, which has not connected yet.
func (c *connection) dial() (redis.UniversalClient, error) {
	if err := redisclient.CheckPrefix("--prefix", c.prefix); err != nil {
		return nil, usageError{err}
	}
	client, err := c.Open()
	if err != nil {
		return nil, usageError{err}
	}
	return client, nil
}
