package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/routelimit/limit/cmd/limitctl/internal/doctor"
	"github.com/routelimit/limit/cmd/limitctl/internal/redisclient"
	"github.com/routelimit/limit/cmd/limitctl/internal/words"
)

// A findings error is the exit code of findings that have been printed.
type findings int

func (findings) Error() string { return "there are findings" }

// A usageError says that a command was called with wrong arguments, and did nothing.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// exitCode returns the code of an error, and the text to print. Parts of an error may be
// from elsewhere, such as the name of a file: nothing in the text moves a cursor.
func exitCode(err error) (code int, text string) {
	var found findings
	var wrong usageError
	switch {
	case err == nil:
		return 0, ""
	case errors.As(err, &found):
		return int(found), ""
	case errors.As(err, &wrong), strings.HasPrefix(err.Error(), "unknown command "): // of cobra, which has no type for it
		return 3, words.Lines(err.Error())
	}
	return 1, words.Lines(redisclient.Explain(err).Error())
}

func newDoctorCommand() *cobra.Command {
	var at connection
	var redis doctor.RedisOptions
	var web doctor.WebOptions
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check a Redis and an application that use limit, and say what to change",
		Long: `Check a Redis and an application that use limit, and say what to change.

It writes nothing to Redis, and finds keys with SCAN. It sends one request to each
route of an application, and two more to the first route with a rule by address,
one of them with a forged address.

The exit code is 0 without warnings and failures, 1 with warnings, 2 with a
failure, and 3 for wrong arguments. Skipped checks do not count.`,
		Example: `  limitctl doctor --redis redis://127.0.0.1:6379
  limitctl doctor --redis redis://127.0.0.1:7000 --cluster --json
  limitctl doctor --url https://api.example.com --route /items --route "HEAD /login"`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			redis.URL, redis.Cluster, redis.Prefix = at.url, at.cluster, at.prefix
			if redis.URL == "" && web.URL == "" {
				return usageError{errors.New("name what to check: --redis redis://127.0.0.1:6379, --url http://127.0.0.1:8080, or both")}
			}
			if web.URL == "" && len(web.Routes) > 0 {
				return usageError{errors.New("--route: name the application by --url as well")}
			}
			redisclient.Quiet()
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
