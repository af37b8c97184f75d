package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/routelimit/limit/control"
	"github.com/routelimit/limit/policyfile"
)

// newPolicyCommands returns the commands about policy files.
func newPolicyCommands() []*cobra.Command {
	return []*cobra.Command{newCheckCommand(), newExplainCommand(), newSchemaCommand(), newPushCommand(), newHistoryCommand()}
}

func newCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE...",
		Short: "Check policy files",
		Long: `Check policy files, and print every mistake with its file, line and column.

The exit code is 0 if all files are valid, 1 if one is not, and 3 for wrong arguments.`,
		Example: "  limitctl check policy.yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError{errors.New("name a file: limitctl check policy.yaml")}
			}
			wrong := false
			for _, path := range args {
				if _, err := policyfile.Read(path); err != nil {
					fmt.Fprintln(cmd.ErrOrStderr(), err)
					wrong = true
				}
			}
			if wrong {
				return findings(1)
			}
			return nil
		},
	}
}

func newExplainCommand() *cobra.Command {
	var address, user string
	var headers []string
	cmd := &cobra.Command{
		Use:   "explain FILE REQUEST",
		Short: "Say which policy of a file applies to a request, and why",
		Long: `Say which policy of a file applies to a request, and why: the entry that exempts or
bars it, the route that matches it, and the key and limit of each rule.`,
		Example: `  limitctl explain policy.yaml "POST /login" --ip 203.0.113.9 --user alice
  limitctl explain policy.yaml "GET https://api.example.com/items/7" --header "X-API-Key: k"`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 3 { // limitctl explain FILE POST /login
				args = []string{args[0], args[1] + " " + args[2]}
			}
			if len(args) != 2 {
				return usageError{errors.New(`name a file and a request: limitctl explain policy.yaml "POST /login"`)}
			}
			r, err := request(args[1], address, headers)
			if err != nil {
				return usageError{err}
			}
			f, err := policyfile.Read(args[0])
			if err != nil {
				fmt.Fprintln(cmd.ErrOrStderr(), err)
				return findings(1)
			}
			_, err = io.WriteString(cmd.OutOrStdout(), f.Explain(r, user))
			return err
		},
	}
	cmd.Flags().StringVar(&address, "ip", "192.0.2.1", "the address of the client")
	cmd.Flags().StringVar(&user, "user", "", "the user")
	cmd.Flags().StringArrayVar(&headers, "header", nil, `a header, "Name: value"; may be repeated`)
	return cmd
}

// request returns the request that arguments describe.
func request(line, address string, headers []string) (*http.Request, error) {
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
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return nil, fmt.Errorf("--ip %q: write an address, such as 203.0.113.9", address)
	}
	r.RemoteAddr = net.JoinHostPort(ip.String(), "1")
	for _, header := range headers {
		name, value, ok := strings.Cut(header, ":")
		if !ok {
			return nil, fmt.Errorf("--header %q: write \"Name: value\"", header)
		}
		r.Header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	return r, nil
}

func newSchemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of policy files, for editors",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(policyfile.Schema())
			return err
		},
	}
}

// shared are the flags of commands about pushed files.
type shared struct {
	url, prefix, name, by string
}

func (s *shared) flags(cmd *cobra.Command, by bool) {
	cmd.Flags().StringVar(&s.url, "redis", "", "the Redis of the programs, such as redis://127.0.0.1:6379")
	cmd.Flags().StringVar(&s.prefix, "prefix", "", "control.Options.Prefix of the programs")
	if by {
		cmd.Flags().StringVar(&s.name, "name", policyfile.DefaultName, "policyfile.Options.Name of the programs")
		cmd.Flags().StringVar(&s.by, "by", os.Getenv("USER"), "who changes the policies, for the history")
	}
}

func (s *shared) open() (*control.Control, func() error, error) {
	options, err := redis.ParseURL(s.url)
	if err != nil {
		return nil, nil, usageError{fmt.Errorf("--redis %q: write a URL such as redis://127.0.0.1:6379", s.url)}
	}
	client := redis.NewClient(options)
	return control.New(client, &control.Options{Prefix: s.prefix}), client.Close, nil
}

func newPushCommand() *cobra.Command {
	var s shared
	var expires time.Duration
	var withdraw bool
	cmd := &cobra.Command{
		Use:   "push FILE",
		Short: "Put a policy file in force on all instances, through Redis",
		Long: `Put a policy file in force on all instances that follow its name on a Redis. It
replaces their own file as a whole until it ends or is withdrawn. A file with a
mistake is not pushed.`,
		Example: `  limitctl push policy.yaml --redis redis://127.0.0.1:6379 --by ann --for 2h
  limitctl push --withdraw --redis redis://127.0.0.1:6379 --by ann`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if withdraw != (len(args) == 0) || len(args) > 1 {
				return usageError{errors.New("name one file, or write --withdraw and none")}
			}
			c, done, err := s.open()
			if err != nil {
				return err
			}
			defer done()
			if withdraw {
				was, err := policyfile.Withdraw(cmd.Context(), c, s.name, s.by)
				if err == nil && !was {
					err = fmt.Errorf("nothing is pushed as %q", s.name)
				}
				return err
			}
			f, err := policyfile.Read(args[0])
			if err != nil {
				fmt.Fprintln(cmd.ErrOrStderr(), err)
				return findings(1)
			}
			return policyfile.Push(cmd.Context(), c, s.name, f, expires, s.by)
		},
	}
	s.flags(cmd, true)
	cmd.Flags().DurationVar(&expires, "for", 0, "how long the file is in force; 0 until it is withdrawn")
	cmd.Flags().BoolVar(&withdraw, "withdraw", false, "end what is pushed")
	return cmd
}

func newHistoryCommand() *cobra.Command {
	var s shared
	cmd := &cobra.Command{
		Use:     "history",
		Short:   "List who pushed and withdrew policy files, and when",
		Args:    cobra.NoArgs,
		Example: "  limitctl history --redis redis://127.0.0.1:6379",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, done, err := s.open()
			if err != nil {
				return err
			}
			defer done()
			changes, err := policyfile.History(cmd.Context(), c)
			if err != nil {
				return err
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			for _, change := range changes {
				what := "pushed"
				switch {
				case change.Deleted:
					what = "withdrawn"
				case change.Name == "":
					what = "restored after a loss of data"
				case !change.Expires.IsZero():
					what += " until " + change.Expires.UTC().Format(time.RFC3339)
				}
				fmt.Fprintf(w, "%s\t%q\tby %q\t%s\n", change.At.UTC().Format(time.RFC3339), change.Name, change.By, what)
			}
			return w.Flush()
		},
	}
	s.flags(cmd, false)
	return cmd
}
