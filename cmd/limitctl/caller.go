package main

import (
	"bytes"
	"context"
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

// A caller is what arguments say of a request and of the limiter that decides it.
type caller struct {
	address, user, plan, class, header string
	headers, trusted, classes          []string
	hops                               int
}

func classesFlag(cmd *cobra.Command, classes *[]string) {
	cmd.Flags().StringSliceVar(classes, "classes", nil, "limit.Options.Classes of the program, from the highest; default critical,default,background")
}

// proxiesFlags are about limit.Options.Proxies of the program.
func (c *caller) proxiesFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
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
	o = &limit.Options{Caller: limit.Caller[*http.Request]{User: always(c.user), Plan: always(c.plan), Class: always(c.class)}, Classes: c.classes, Log: quiet,
		Proxies: limit.Proxies{Hops: c.hops, Header: c.header}}
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
	log := slog.New(slog.NewTextHandler(&warnings, &slog.HandlerOptions{Level: slog.LevelWarn, ReplaceAttr: withoutTime}))
	policies, err := policyfile.Open(path, &policyfile.Options{Log: log})
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
	fmt.Fprintf(cmd.OutOrStdout(), "%s: valid, sha256 %s, policies %d", path, policies.Status().Sum, len(f.Policies()))
	if len(f.Policies()) == 0 {
		fmt.Fprint(cmd.OutOrStdout(), ": programs limit nothing by it")
	}
	fmt.Fprintln(cmd.OutOrStdout())
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

// withoutTime leaves the time and the level out of lines that are not in a log.
func withoutTime(groups []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
		return slog.Attr{}
	}
	return a
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

func always(text string) func(*http.Request) string {
	return func(*http.Request) string { return text }
}
