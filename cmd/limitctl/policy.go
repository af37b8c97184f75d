package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/cmd/limitctl/internal/words"
	"github.com/routelimit/limit/ops/policyfile"
)

func newCheckCommand() *cobra.Command {
	var caller caller
	var replaces string
	cmd := &cobra.Command{
		Use:   "check FILE...",
		Short: "Check policy files",
		Long: `Check policy files, and print their mistakes with file, line and column: of each
rule, the first one. For a valid file it prints its SHA-256, as programs log it,
and the number of its policies. With --replaces it warns of the limits of
another file that the file lifts, and with --trusted of proxies that the file
exempts.

The exit code is 0 if all files are valid, 1 if one is not, and 3 for wrong
arguments.`,
		Example: `  limitctl check policy.yaml
  limitctl check policies/*.yaml --classes interactive,default,batch
  limitctl check new.yaml --replaces policy.yaml --trusted 10.0.0.5/32`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError{errors.New("name a file: limitctl check policy.yaml")}
			}
			if _, err := caller.options(); err != nil {
				return usageError{err}
			}
			var earlier *policyfile.File
			if replaces != "" {
				var err error
				if earlier, err = policyfile.Read(replaces); err != nil {
					return err
				}
			}
			var errs []error
			for _, path := range args {
				errs = append(errs, caller.check(cmd, path, earlier))
			}
			return errors.Join(errs...)
		},
	}
	caller.limiterFlags(cmd)
	cmd.Flags().StringVar(&replaces, "replaces", "", "the `file` that is in force so far")
	return cmd
}

func newExplainCommand() *cobra.Command {
	var c caller
	var at connection
	cmd := &cobra.Command{
		Use:   "explain FILE REQUEST",
		Short: "Say which policy of a file applies to a request, and why",
		Long: `Say which policy of a file applies to a request, and why: the entry that exempts
or bars it, the route that matches it, and for each rule the key, the limit of
this caller, what is reserved for higher classes, or the entry that exempts it.

A file does not say what proxies the program trusts. Without --trusted and
--hops, the address is that of the client, and the output says so.

With --redis it looks up overrides too. It charges nothing.

The exit code is 0 if a policy or none applies, 1 if the file is not valid or
Redis cannot be read, and 3 for wrong arguments.`,
		Example: `  limitctl explain policy.yaml "POST /login" --ip 203.0.113.9 --user alice
  limitctl explain policy.yaml "GET https://api.example.com/items/7" \
    --header "X-API-Key: k"
  limitctl explain policy.yaml GET / --ip 10.0.0.5 --trusted 10.0.0.5/32 \
    --header "X-Forwarded-For: 203.0.113.9"`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 3 { // limitctl explain FILE POST /login
				args = []string{args[0], args[1] + " " + args[2]}
			}
			if len(args) != 2 {
				return usageError{errors.New(`name a file and a request: limitctl explain policy.yaml "POST /login"`)}
			}
			r, err := c.request(args[1])
			if err != nil {
				return usageError{err}
			}
			options, err := c.options()
			if err != nil {
				return usageError{err}
			}
			f, err := policyfile.Read(args[0])
			if err != nil {
				return err
			}
			if at.URL != "" {
				s, err := at.session(at.prefix)
				if err != nil {
					return err
				}
				defer s.end()
				if err := s.readOverrides(cmd.Context()); err != nil {
					return err
				}
				options.Override = s.overrides.Limit
			}
			_, err = io.WriteString(cmd.OutOrStdout(), c.assumed()+f.Explain(r, options))
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&c.address, "ip", "192.0.2.1", "the `address` of the client or, with --trusted or --hops, of the proxy in front of the program")
	c.limiterFlags(cmd)
	flags.StringVar(&c.user, "user", "", "the user")
	flags.StringVar(&c.plan, "plan", "", "the plan of the caller")
	flags.StringVar(&c.class, "class", "", "the class of the request")
	flags.StringArrayVar(&c.headers, "header", nil, "a header, \"Name: value\"; may be repeated")
	at.flags(cmd, "control.Options.Prefix of the programs")
	return cmd
}

func newSchemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of policy files, for editors",
		Long: `Print the JSON Schema of policy files, with which editors complete and check
them. The exit code is 0, or 3 for wrong arguments.`,
		Example: "  limitctl schema > policies.schema.json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(policyfile.Schema())
			return err
		},
	}
}

// A caller is what arguments say of a request and of the limiter that decides it.
type caller struct {
	address, user, plan, class, header string
	headers, trusted, classes          []string
	hops                               int
}

// limiterFlags are about limit.Options of the program.
func (c *caller) limiterFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringSliceVar(&c.classes, "classes", nil, "limit.Options.Classes of the program, from the highest; default critical,default,background")
	flags.StringArrayVar(&c.trusted, "trusted", nil, "a `prefix` of limit.Proxies.Trusted of the program, such as 10.0.0.5/32; may be repeated")
	flags.IntVar(&c.hops, "hops", 0, "limit.Proxies.Hops of the program")
	flags.StringVar(&c.header, "proxy-header", "", "limit.Proxies.Header of the program, such as X-Real-IP; default X-Forwarded-For")
}

// assumed says what a request means without the proxies of the program.
func (c *caller) assumed() string {
	if len(c.trusted) > 0 || c.hops > 0 {
		return ""
	}
	return fmt.Sprintf("assumed: %s is the client, and no proxy is between it and the program; name proxies by --trusted or --hops\n", c.address)
}

// request returns the request that a line such as "POST /login" describes.
func (c *caller) request(line string) (*http.Request, error) {
	method, target, ok := strings.Cut(line, " ")
	if !ok {
		method, target = http.MethodGet, line
	}
	u, err := url.Parse(target)
	if err != nil || !strings.HasPrefix(u.Path, "/") {
		return nil, fmt.Errorf("request %q: write a method and a path, such as \"POST /login\"", line)
	}
	r, err := http.NewRequest(method, target, nil)
	if err != nil {
		return nil, fmt.Errorf("request %q: %w", line, err)
	}
	ip, err := netip.ParseAddr(c.address)
	if err != nil {
		return nil, fmt.Errorf("--ip %q: write an address, such as 203.0.113.9", c.address)
	}
	r.RemoteAddr = net.JoinHostPort(ip.String(), "1")
	for _, header := range c.headers {
		name, value, ok := strings.Cut(header, ":")
		if !ok {
			return nil, fmt.Errorf("--header %q: write \"Name: value\"", header)
		}
		r.Header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	return r, nil
}

func (c *caller) options() (o *limit.Options, err error) {
	always := func(text string) func(*http.Request) string { return func(*http.Request) string { return text } }
	o = &limit.Options{
		Caller:  limit.Caller[*http.Request]{User: always(c.user), Plan: always(c.plan), Class: always(c.class)},
		Proxies: limit.Proxies{Hops: c.hops, Header: c.header},
		Classes: c.classes,
		Log:     quiet,
	}
	for _, text := range c.trusted {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("--trusted %q: write a prefix, such as 10.0.0.0/8", text)
		}
		o.Proxies.Trusted = append(o.Proxies.Trusted, prefix)
	}
	defer func() {
		if problem := recover(); problem != nil { // of New
			err = fmt.Errorf("--classes %q, --trusted %q, --hops %d, --proxy-header %q: %v", c.classes, c.trusted, c.hops, c.header, problem)
		}
	}()
	limit.New(nil, o)
	return o, nil
}

// check says what a file is, with a line for each warning and for each limit of an earlier
// file that it lifts. The error is what is wrong with the file on a limiter with these options.
func (c *caller) check(cmd *cobra.Command, path string, earlier *policyfile.File) error {
	options, err := c.options()
	if err != nil {
		return err
	}
	var warnings bytes.Buffer
	lines := &slog.HandlerOptions{Level: slog.LevelWarn, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == slog.LevelKey { // which are for lines in a log
			return slog.Attr{}
		}
		return a
	}}
	policies, err := policyfile.Open(path, &policyfile.Options{Log: slog.New(slog.NewTextHandler(&warnings, lines))})
	if err != nil {
		return err
	}
	f, err := policyfile.Read(path)
	if err != nil {
		return err
	}
	ended, end := context.WithCancel(context.Background())
	end() // the file is not followed
	limiter := limit.New(nil, options)
	declared := declareOthers(limiter, f)
	if err := policies.Follow(ended, limiter); err != nil {
		return err
	}
	empty := ""
	if len(f.Policies()) == 0 {
		empty = ": programs limit nothing by it"
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s: valid, sha256 %s, policies %d%s\n", path, policies.Status().Sum, len(f.Policies()), empty)
	for _, name := range declared {
		fmt.Fprintf(cmd.ErrOrStderr(), "with %s: the program must declare the policy, since the file does not have it\n", name)
	}
	warnings.WriteTo(cmd.ErrOrStderr())
	lifts(cmd.ErrOrStderr(), f, earlier)
	return nil
}

// declareOthers declares the policies that those of a file are with and that it does not have,
// as a program does, with a rule that stands for theirs. It returns their names.
func declareOthers(l *limit.Limiter, f *policyfile.File) (names []string) {
	for _, p := range f.Policies() {
		for _, other := range p.Rules.Others() {
			if len(other.Declared())+len(other.Others()) > 0 || slices.Contains(names, other.Name()) {
				continue
			}
			names = append(names, other.Name())
			_, _ = l.Policy(limit.Named(other.Name(), limit.Global(time.Second, 1))) // the name is valid
		}
	}
	return names
}

// lifts writes a warning for each limit of an earlier file, if there is one, that is not in
// force with another one.
func lifts(w io.Writer, f, earlier *policyfile.File) {
	if earlier == nil {
		return
	}
	for _, text := range f.Lifts(earlier) {
		fmt.Fprintf(w, "LIMIT-207: lifts %s\n", words.Printable(text))
	}
}
