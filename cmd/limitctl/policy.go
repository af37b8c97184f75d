package main

import (
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/routelimit/limit/ops/overrides"
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
	classesFlag(cmd, &caller.classes)
	caller.proxiesFlags(cmd)
	cmd.Flags().StringVar(&replaces, "replaces", "", "the `file` that is in force so far")
	return cmd
}

func newExplainCommand() *cobra.Command {
	var c caller
	var s shared
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
			if s.URL != "" {
				control, done, err := s.open()
				if err != nil {
					return err
				}
				defer done()
				o, err := overrides.Read(cmd.Context(), control, &overrides.Options{Log: quiet})
				if err != nil {
					return err
				}
				options.Override = o.Limit
			}
			_, err = io.WriteString(cmd.OutOrStdout(), c.assumed()+f.Explain(r, options))
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&c.address, "ip", "192.0.2.1", "the `address` of the client or, with --trusted or --hops, of the proxy in front of the program")
	c.proxiesFlags(cmd)
	flags.StringVar(&c.user, "user", "", "the user")
	flags.StringVar(&c.plan, "plan", "", "the plan of the caller")
	flags.StringVar(&c.class, "class", "", "the class of the request")
	flags.StringArrayVar(&c.headers, "header", nil, "a header, \"Name: value\"; may be repeated")
	classesFlag(cmd, &c.classes)
	s.flags(cmd, false)
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
