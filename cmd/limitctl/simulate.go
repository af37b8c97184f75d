package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/cmd/limitctl/internal/report"
	"github.com/routelimit/limit/cmd/limitctl/internal/words"
	"github.com/routelimit/limit/cmd/limitctl/replay"
	"github.com/routelimit/limit/cmd/limitctl/replay/accesslog"
	"github.com/routelimit/limit/ops/policyfile"
)

// A simulation is the arguments of limitctl simulate.
type simulation struct {
	policy, rules, compare string
	format                 string
	json, suggest          bool
	top                    int
	proxies                []string
	trusted                []netip.Prefix // of proxies; set by check
	share                  float64
	ipv6Prefix, maxKeys    int
}

func newSimulateCommand() *cobra.Command {
	var s simulation
	cmd := &cobra.Command{
		Use:   "simulate LOG...",
		Short: "Say what a policy would have done to the requests of access logs",
		Long: `Say what a policy would have done to the requests of access logs: how many would
have been refused, of which clients, on which routes, by which rules, when and
for how long. Without a policy, it suggests limits.

It decides with the limiter itself, in memory, at the times of the log. It reads
the logs of nginx, Nginx Proxy Manager, Apache, Caddy, Traefik, Envoy, HAProxy,
AWS ALB, CloudFront, Cloudflare, IIS, Gin, Echo and log/slog, CSV with a header,
and JSON lines, also as Kubernetes, Docker, syslog and journald pass them on,
plain or compressed with gzip or zstd. LOG is a file, a pattern such as
"access.log*", or - for the standard input. Files may be given in any order. To
suggest limits, it reads the log twice, the standard input from a copy in the
directory of temporary files. A pipe is read once, and no suggestion is tried.

A request meets the policy of its route, and those that it is "with" in the
file. Rule sets that code puts around or behind it are not replayed.

The report lists addresses of clients. Keep it as you keep the logs.

The exit code is 0 if all logs were read, whatever would have been refused, 1 if
one or a policy file could not be read or the command was interrupted, and 3 for
wrong arguments.`,
		Example: `  limitctl simulate access.log
  limitctl simulate --rules "100/1m per ip" access.log
  limitctl simulate --file policy.yaml "/var/log/nginx/access.log*"
  limitctl simulate --file policy.yaml --compare new.yaml access.log
  zcat old.gz | limitctl simulate --file policy.yaml --json - | jq .refused
  limitctl simulate --format '$remote_addr [$time_iso8601] "$request" $status' \
    odd.log`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("suggest") {
				s.suggest = s.policy == "" && s.rules == ""
			}
			return s.run(cmd, args)
		},
	}
	f := cmd.Flags()
	f.StringVar(&s.policy, "file", "", "a policy `file`")
	f.StringVar(&s.rules, "rules", "", "`rules` for all requests instead of a file, such as \"100/1m per ip\"")
	f.StringVar(&s.compare, "compare", "", "a policy `file` to compare with: what would it change?")
	f.StringVar(&s.format, "format", "", "the `format` of the log: a name, an nginx log_format, or json FIELD=NAME…; found from the log by default")
	f.BoolVar(&s.json, "json", false, "print JSON")
	f.BoolVar(&s.suggest, "suggest", false, "suggest limits (the default without a policy)")
	f.Float64Var(&s.share, "share", 1, "the percentage of clients that may exceed suggested limits")
	f.IntVar(&s.top, "top", 10, "how many entries lists have")
	f.StringSliceVar(&s.proxies, "proxies", nil, "`networks` of your proxies, such as 10.0.0.0/8, in logs with X-Forwarded-For")
	f.IntVar(&s.ipv6Prefix, "ipv6-prefix", 64, "the `bits` of an IPv6 address that make a client, as in limit.Proxies")
	f.IntVar(&s.maxKeys, "max-keys", 1<<20, "the largest `number` of keys with a quota of their own; a key takes about 220 bytes")
	return cmd
}

func (s *simulation) check(logs []string) error {
	switch {
	case len(logs) == 0:
		return errors.New("name a log, or - for the standard input: limitctl simulate --file policy.yaml access.log")
	case s.policy != "" && s.rules != "":
		return errors.New("--file and --rules: write one of them")
	case s.compare != "" && s.policy == "" && s.rules == "":
		return errors.New("--compare: name the policy that it is compared with, by --file or --rules")
	case s.top < 1 || s.top > 1000:
		return fmt.Errorf("--top %d: write 1 to 1000", s.top)
	case s.ipv6Prefix < 32 || s.ipv6Prefix > 128:
		return fmt.Errorf("--ipv6-prefix %d: write 32 to 128", s.ipv6Prefix)
	case s.maxKeys < 1:
		return fmt.Errorf("--max-keys %d: write 1 or more", s.maxKeys)
	case !(s.share >= 0 && s.share < 100): // or NaN
		return fmt.Errorf("--share %g: write a percentage from 0 to less than 100", s.share)
	}
	for _, text := range s.proxies {
		network, err := netip.ParsePrefix(text)
		if addr, problem := netip.ParseAddr(text); problem == nil {
			network, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		if err != nil || network != network.Masked() {
			return fmt.Errorf("--proxies %q: write a network or an address, such as 10.0.0.0/8", text)
		}
		s.trusted = append(s.trusted, network)
	}
	return nil
}

func (s *simulation) run(cmd *cobra.Command, logs []string) error {
	if err := s.check(logs); err != nil {
		return usageError{err}
	}
	reading := new(accesslog.Options)
	var input spool
	if slices.Contains(logs, "-") {
		from := cmd.InOrStdin()
		if s.suggest {
			input.file, input.err = os.CreateTemp("", "limitctl-*.log")
			defer input.remove()
			from = io.TeeReader(from, &input)
		}
		reading.Stdin = interruptible(cmd.Context(), from)
	}
	if s.format != "" {
		var err error
		if reading.Format, err = accesslog.ParseFormat(s.format); err != nil {
			return usageError{err}
		}
	}
	options, notes, err := s.options()
	if err != nil {
		return err
	}
	log, err := accesslog.Open(logs, reading)
	if err != nil {
		return err
	}
	defer log.Close()
	bar := io.Discard
	if !s.json && isTerminal(cmd.ErrOrStderr()) {
		bar = cmd.ErrOrStderr()
	}
	options.Progress = func(lines int64) { fmt.Fprintf(bar, "\r%s lines read", words.Number(lines)) }
	options.Again = func() (replay.Source, error) {
		if reading.Stdin != nil {
			if reading.Stdin = input.again(); reading.Stdin == nil {
				return nil, nil
			}
		}
		if log.Piped() {
			return nil, nil
		}
		return accesslog.Open(logs, reading)
	}
	result, err := replay.Run(cmd.Context(), log, options)
	fmt.Fprint(bar, "\r\x1b[K") // erases the line
	if result == nil {
		return err
	}
	result.Notes = append(notes, result.Notes...)
	return errors.Join(s.write(cmd, result, err), s.verdict(result, err))
}

// verdict returns the error of a replay whose result has been written.
func (s *simulation) verdict(result *replay.Result, stopped error) error {
	switch {
	case stopped != nil:
		return fmt.Errorf("stopped after %d lines: %w", result.Lines, stopped)
	case result.Lines > 0 && result.Lines == result.BadLines && s.format != "":
		return fmt.Errorf("no line of the log has the format %q: leave out --format to have it found", s.format)
	}
	var errs []error
	for _, f := range result.Files {
		if f.Error != "" {
			errs = append(errs, fmt.Errorf("not read, and not in the report: %s", f.Error))
		}
	}
	return errors.Join(errs...)
}

func (s *simulation) options() (o *replay.Options, notes []string, err error) {
	o = &replay.Options{Top: s.top, IPv6Prefix: s.ipv6Prefix, Trusted: s.trusted, MaxKeys: s.maxKeys, NoSuggestions: !s.suggest, Share: s.share / 100}
	if s.rules != "" {
		rules, err := limit.Parse(s.rules)
		if err != nil {
			return nil, nil, usageError{fmt.Errorf("--rules: %w", err)}
		}
		o.Policies = []replay.Policy{{Name: "all routes", Rules: rules}}
	}
	if s.policy != "" {
		if err := readPolicy(s.policy, o, &notes); err != nil {
			return nil, nil, err
		}
	}
	if s.compare != "" {
		o.Compare = new(replay.Options)
		if err := readPolicy(s.compare, o.Compare, &notes); err != nil {
			return nil, nil, err
		}
	}
	return o, notes, nil
}

// readPolicy sets the policies of a file that have routes, and its lists.
func readPolicy(path string, o *replay.Options, notes *[]string) error {
	f, err := policyfile.Read(path)
	if err != nil {
		return err
	}
	policies := f.Policies()
	for _, p := range policies {
		switch {
		case len(p.Routes) > 0:
			o.Policies = append(o.Policies, replay.Policy{Name: p.Name, Routes: p.Routes, Rules: p.Rules})
		case !replayedWith(policies, p.Name):
			*notes = append(*notes, fmt.Sprintf("policy %q of %s has no routes, since code attaches it: it is not replayed; "+
				"to see what it would do, write its routes into a copy of the file", p.Name, path))
		}
	}
	if len(o.Policies) == 0 {
		*notes = append(*notes, fmt.Sprintf("%s has no policy with routes, and so refuses nothing", path))
	}
	exempted, barred := f.Lists()
	if exempted != nil {
		o.Exempt = exempted.Matches
	}
	if barred != nil {
		o.Bar = barred.Bar
	}
	return nil
}

// replayedWith reports whether a policy with routes is with the one of a name.
func replayedWith(policies []policyfile.Policy, name string) bool {
	return slices.ContainsFunc(policies, func(p policyfile.Policy) bool {
		return len(p.Routes) > 0 && slices.ContainsFunc(p.Rules.Others(), func(other limit.RuleSet) bool { return other.Name() == name })
	})
}

func (s *simulation) write(cmd *cobra.Command, result *replay.Result, stopped error) error {
	r := &report.Report{Result: result, Policy: cmp.Or(s.rules, s.policy), Compare: s.compare, Top: s.top, Share: s.share / 100}
	if stopped != nil {
		r.Stopped = stopped.Error()
		if errors.Is(stopped, context.Canceled) {
			r.Stopped = "interrupted"
		}
		result.Notes = append([]string{fmt.Sprintf("stopped before the end of the log: %s", r.Stopped)}, result.Notes...)
	}
	if s.json {
		return words.WriteJSON(cmd.OutOrStdout(), result, true)
	}
	fit := report.File
	if isTerminal(cmd.OutOrStdout()) {
		fit = report.Terminal
	}
	return r.Text(cmd.OutOrStdout(), fit)
}

// A spool is a copy of what is read, to read it again. If it cannot be written, there is none.
type spool struct {
	file *os.File
	err  error // the first one
}

// Write implements [io.Writer]. It never fails, so that what is read is not cut short.
func (s *spool) Write(p []byte) (int, error) {
	if s.err == nil {
		_, s.err = s.file.Write(p)
	}
	return len(p), nil
}

// again returns the copy, or nil if there is none.
func (s *spool) again() io.Reader {
	if s.err == nil {
		_, s.err = s.file.Seek(0, io.SeekStart)
	}
	if s.err != nil {
		return nil
	}
	return s.file
}

func (s *spool) remove() {
	if s.file != nil {
		s.file.Close()
		os.Remove(s.file.Name())
	}
}

// interruptible returns an input that ends with a context, although a read of it may wait forever:
// from a terminal, or a pipe whose writer is silent.
func interruptible(ctx context.Context, from io.Reader) io.Reader {
	read, write := io.Pipe()
	go func() {
		_, err := io.Copy(write, from)
		write.CloseWithError(err)
	}()
	context.AfterFunc(ctx, func() { write.Close() })
	return read
}
