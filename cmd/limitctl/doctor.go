package main

import (
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"

	"github.com/routelimit/limit/cmd/limitctl/internal/doctor"
)

// A findings error is what a doctor has to say by the exit code alone: it has
// printed the rest.
type findings int

func (findings) Error() string { return "there are findings" }

// An unasked error says that the doctor was asked wrongly, and looked at
// nothing.
type unasked struct{ error }

func (e unasked) Unwrap() error { return e.error }

// exitCode returns the code of an error, and whether it is to be printed.
func exitCode(err error) (code int, print bool) {
	var found findings
	var wrong unasked
	switch {
	case err == nil:
		return 0, false
	case errors.As(err, &found):
		return int(found), false
	case errors.As(err, &wrong):
		return 3, true
	}
	return 1, true
}

func newDoctorCommand() *cobra.Command {
	var redis doctor.RedisOptions
	var web doctor.WebOptions
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check a Redis and an application that use limit, and say what to change",
		Long: `Check a Redis and an application that use limit, and say what to change.

It writes nothing to Redis, and looks at keys with SCAN. On an application it
sends three requests to the first route, one of them with a forged address, and
one to each other route.

The exit code is 0 if nothing is wrong, 1 if there are warnings, 2 if there is a
failure, and 3 if it was asked wrongly. What was skipped is not wrong.`,
		Example: `  limitctl doctor --redis redis://127.0.0.1:6379
  limitctl doctor --redis redis://127.0.0.1:7000 --cluster --json
  limitctl doctor --url https://api.example.com --route /items --route "HEAD /login"`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unasked{fmt.Errorf("doctor takes no arguments, only flags: see limitctl doctor --help")}
			}
			if redis.URL == "" && web.URL == "" {
				return unasked{errors.New("name what to look at: --redis redis://127.0.0.1:6379, --url http://127.0.0.1:8080, or both")}
			}
			if web.URL == "" && len(web.Routes) > 0 {
				return unasked{errors.New("--route: name the application with --url as well")}
			}
			logging.Disable() // what go-redis would log comes back as errors
			var facts doctor.Facts
			var err error
			if redis.URL != "" {
				if facts.Redis, err = doctor.Redis(cmd.Context(), redis); err != nil {
					return unasked{err}
				}
			}
			if web.URL != "" {
				if facts.Web, err = doctor.Web(cmd.Context(), web); err != nil {
					return unasked{err}
				}
			}
			if err := cmd.Context().Err(); err != nil {
				return unasked{fmt.Errorf("interrupted: %w", err)}
			}
			all := doctor.Examine(facts)
			print := doctor.Print
			if asJSON {
				print = doctor.PrintJSON
			}
			if err := print(cmd.OutOrStdout(), all); err != nil {
				return unasked{err}
			}
			if code := doctor.ExitCode(all); code != 0 {
				return findings(code)
			}
			return nil
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return unasked{err} })
	flags := cmd.Flags()
	flags.StringVar(&redis.URL, "redis", "", "`URL` of the Redis, such as redis://user:password@127.0.0.1:6379/0")
	flags.BoolVar(&redis.Cluster, "cluster", false, "the Redis is a Cluster, and the URL one of its nodes")
	flags.StringVar(&redis.Prefix, "prefix", "limit", "what the keys begin with, as in redisstore.Options")
	flags.IntVar(&redis.Keys, "keys", 10_000, "how `many` keys to look at, at most")
	flags.StringVar(&web.URL, "url", "", "`URL` of an application, to send it a few requests")
	flags.StringArrayVar(&web.Routes, "route", nil, "`path` of the application that should be limited, such as /items or \"HEAD /items\"; may be repeated")
	flags.BoolVar(&asJSON, "json", false, "print a line of JSON for each finding")
	return cmd
}
