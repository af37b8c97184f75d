package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/cmd/limitctl/internal/redisclient"
	"github.com/routelimit/limit/cmd/limitctl/internal/report"
	"github.com/routelimit/limit/internal/clientip"
	"github.com/routelimit/limit/ops/access"
)

func newBanCommand() *cobra.Command {
	var d deployment
	var length time.Duration
	var reason string
	var yes, list, lift bool
	cmd := &cobra.Command{
		Use:   "ban ENTRY | --list | --lift ENTRY",
		Short: "Bar a client on all instances, list the bans, or lift one",
		Long: `Bar a client on all instances, list the bans, or lift one. These are the bans of
access.Bans, which the programs must have in their limit.Options.Bar. They refuse a
barred client with 403. ENTRY is an address, a prefix, "user NAME" or "agent PART".
Write the /64 of an IPv6 client. A change is in force within a second.

What a rule of limit.Ban bars is not in the list: see limitctl top, and limitctl reset.

It shows what it will do, and asks. Without a terminal, write --yes. The exit code is 0
if it was done, 1 if there was no such ban or Redis failed, 2 if the change was not
confirmed, and 3 for wrong arguments.`,
		Example: `  limitctl ban 203.0.113.9 --for 1h --reason "scans for /wp-admin" --by ann --redis redis://127.0.0.1:6379
  limitctl ban user mallory --for 0 --redis redis://127.0.0.1:6379 --yes
  limitctl ban --list --redis redis://127.0.0.1:6379
  limitctl ban --lift 203.0.113.9 --redis redis://127.0.0.1:6379`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			entry := entryOf(args)
			switch {
			case list && (lift || len(args) > 0) || !list && entry == "":
				return usageError{errors.New(`name one client as an address, a prefix, user NAME or agent PART, such as limitctl ban user mallory --for 1h; or write --list alone`)}
			case !list && d.by == "":
				return usageError{errors.New(`--by "": write who makes the change`)}
			case !list && !lift && !cmd.Flags().Changed("for"):
				return usageError{errors.New("--for: write how long the client is barred, such as --for 1h, or --for 0 until the ban is lifted")}
			case !list && !lift && length < 0:
				return usageError{fmt.Errorf("--for %v: write a time from 0 up, such as --for 1h, or --for 0 until the ban is lifted", length)}
			}
			if _, err := access.Parse(strings.NewReader(entry), nil); err != nil {
				return usageError{printable(fmt.Errorf("%s: %w", shown(entry), err))}
			}
			s, err := d.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer s.end()
			bans := s.bans(cmd.Context())
			switch {
			case list:
				return printList(cmd, "bans", shownBans(bans.List()), d.json)
			case lift:
				return liftBan(cmd, bans, entry, d.by, yes)
			}
			return ban(cmd, bans, entry, length, d.by, reason, yes)
		},
	}
	f := cmd.Flags()
	d.flags(cmd, false)
	d.changes(cmd)
	yesFlag(cmd, &yes)
	f.DurationVar(&length, "for", 0, "how long the client is barred; 0 until the ban is lifted")
	f.StringVar(&reason, "reason", "", "why, for those who read the list")
	f.BoolVar(&list, "list", false, "list the bans in force")
	f.BoolVar(&lift, "lift", false, "end the ban of ENTRY")
	return cmd
}

// entryOf returns the entry that arguments name: "user alice" may be one or two of them.
func entryOf(args []string) string {
	switch {
	case len(args) == 1:
		return args[0]
	case len(args) == 2 && (args[0] == "user" || args[0] == "agent"):
		return args[0] + " " + strconv.Quote(args[1])
	}
	return ""
}

func ban(cmd *cobra.Command, bans *access.Bans, entry string, length time.Duration, by, reason string, yes bool) error {
	end := "until it is lifted"
	if length > 0 {
		end = "for " + length.String()
	}
	if err := confirm(cmd, yes, "This bars %s on all instances %s.\n", shownEntry(entry), end); err != nil {
		return err
	}
	if length == 0 {
		length = forGood
	}
	if err := bans.Ban(cmd.Context(), entry, length, by, reason); err != nil {
		return printable(redisclient.Explain(err))
	}
	fmt.Fprintf(cmd.OutOrStdout(), "banned: %s %s, by %s\n", shownEntry(entry), end, shown(by))
	return nil
}

func liftBan(cmd *cobra.Command, bans *access.Bans, entry, by string, yes bool) error {
	if err := confirm(cmd, yes, "This lifts the ban of %s on all instances.\n", shownEntry(entry)); err != nil {
		return err
	}
	was, err := bans.Unban(cmd.Context(), entry, by)
	if err == nil && !was {
		err = fmt.Errorf("%w: no ban of %s: limitctl ban --list lists them", errNothing, shownEntry(entry))
	}
	if err != nil {
		return printable(redisclient.Explain(err))
	}
	fmt.Fprintf(cmd.OutOrStdout(), "lifted: %s\n", shownEntry(entry))
	return nil
}

func shownEntry(entry string) string { return report.Printable(entry) }

// bansOf returns the bans that match a key: an address, a prefix or a user.
func (s *session) bansOf(ctx context.Context, key string) (matching []access.Ban) {
	address := clientip.Parse(key)
	if prefix, err := netip.ParsePrefix(key); err == nil {
		address = prefix.Addr()
	}
	limiter := limit.New(nil, &limit.Options{Caller: limit.Caller[*http.Request]{User: always(key)}, Log: quiet})
	client := limit.Client{Request: &http.Request{RemoteAddr: address.String()}, Limiter: limiter}
	for _, b := range s.bans(ctx).List() {
		if list, err := access.Parse(strings.NewReader(b.Entry), nil); err == nil && list.Matches(client) {
			matching = append(matching, b)
		}
	}
	return matching
}

// A shownBan is a ban as commands print it.
type shownBan struct {
	Entry  string     `json:"entry"`
	Until  *time.Time `json:"until,omitempty"` // none if it is for good
	By     string     `json:"by"`
	Reason string     `json:"reason,omitempty"`
	At     time.Time  `json:"at"`
}

func banOf(b access.Ban) shownBan { return shownBan{b.Entry, endOf(b.Until), b.By, b.Reason, b.At} }

func (b shownBan) String() string { return shownEntry(b.Entry) + terms(b.Until, b.By, b.Reason) }

func endOf(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	at = at.UTC()
	return &at
}

// terms describes how long a change lasts, who made it, and why.
func terms(until *time.Time, by, reason string) string {
	text := ", until it is removed"
	if until != nil {
		text = ", until " + until.UTC().Format(time.RFC3339)
	}
	text += ", by " + shown(by)
	if reason != "" {
		text += ": " + report.Printable(reason)
	}
	return text
}

// printList prints a list, or JSON with it.
func printList[T fmt.Stringer](cmd *cobra.Command, name string, list []T, asJSON bool) error {
	if asJSON {
		return report.WriteJSON(cmd.OutOrStdout(), map[string][]T{name: list}, true)
	}
	for _, item := range list {
		fmt.Fprintln(cmd.OutOrStdout(), item)
	}
	if len(list) == 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "There are no %s.\n", name)
	}
	return nil
}
