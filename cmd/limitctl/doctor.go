package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/routelimit/limit/cmd/limitctl/internal/doctor"
)

func newDoctorCommand() *cobra.Command {
	var at connection
	var redis doctor.RedisOptions
	var web doctor.WebOptions
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check a Redis and an application, and say what to change",
		Long: `Check a Redis and an application that use limit, and say what to change.

It writes nothing to Redis, and finds keys with SCAN. It sends one request to
each route of an application, and two more to the first route with a rule by
address, one of them with a forged address.

The exit code is 0 without warnings and failures, 1 with warnings, 2 with a
failure, and 3 for wrong arguments. Skipped checks do not count.`,
		Example: `  limitctl doctor --redis redis://127.0.0.1:6379
  limitctl doctor --redis redis://127.0.0.1:7000 --cluster --json
  limitctl doctor --url https://api.example.com --route "HEAD /login"`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			redis.Address, redis.Prefix = at.Address, at.prefix
			if redis.URL == "" && web.URL == "" {
				return usageError{errors.New("name what to check: --redis redis://127.0.0.1:6379, --url http://127.0.0.1:8080, or both")}
			}
			if web.URL == "" && len(web.Routes) > 0 {
				return usageError{errors.New("--route: name the application by --url as well")}
			}
			var facts doctor.Facts
			var err error
			if redis.URL != "" {
				if facts.Redis, err = doctor.Redis(cmd.Context(), redis); err != nil {
					return usageError{err}
				}
			}
			if web.URL != "" {
				if facts.Web, err = doctor.Web(cmd.Context(), web); err != nil {
					return usageError{err}
				}
			}
			if err := cmd.Context().Err(); err != nil {
				return usageError{fmt.Errorf("interrupted: %w", err)}
			}
			all := doctor.Examine(facts)
			print := doctor.Print
			if asJSON {
				print = doctor.PrintJSON
			}
			if err := print(cmd.OutOrStdout(), all); err != nil {
				return usageError{err}
			}
			if code := doctor.ExitCode(all); code != 0 {
				return findings(code)
			}
			return nil
		},
	}
	flags := cmd.Flags()
	at.flags(cmd, "`prefix` of the keys, as in redisstore.Options")
	flags.IntVar(&redis.Keys, "keys", 10_000, "the largest `number` of keys to check")
	flags.StringVar(&web.URL, "url", "", "`URL` of an application, which gets a few requests")
	flags.StringArrayVar(&web.Routes, "route", nil, "`path` that should be limited, such as /items or \"HEAD /items\"; may be repeated")
	flags.BoolVar(&asJSON, "json", false, "print each finding as a line of JSON")
	return cmd
}
