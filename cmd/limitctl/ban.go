package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/cmd/limitctl/internal/live"
	"github.com/routelimit/limit/cmd/limitctl/internal/words"
	"github.com/routelimit/limit/internal/clientip"
	"github.com/routelimit/limit/internal/grammar"
	"github.com/routelimit/limit/internal/typedkey"
	"github.com/routelimit/limit/ops/access"
)

func newBanCommand() *cobra.Command {
	var c change
	cmd := &cobra.Command{
		Use:   "ban ENTRY | --list | --lift ENTRY",
		Short: "Bar a client on all instances, list the bans, or lift one",
		Long: `Bar a client on all instances, list the bans, or lift one. These are the bans of
access.Bans, which the programs must have in their limit.Options.Bar. They
refuse a barred client with 403. ENTRY is an address, a prefix, "user NAME" or
"agent PART". Write the /64 of an IPv6 client. A change is in force within a
second.

What a rule of limit.Ban bars is not in the list: see limitctl top, and limitctl
reset.

It shows what it will do, and asks. Without a terminal, write --yes. The exit
code is 0 if it was done, 1 if there was no such ban or Redis failed, 2 if the
change was not confirmed, and 3 for wrong arguments.`,
		Example: `  limitctl ban 203.0.113.9 --for 1h --reason "scans for /wp-admin" --by ann
  limitctl ban user mallory --for 0 --yes
  limitctl ban --list
  limitctl ban --lift 203.0.113.9`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			entry := entryOf(args)
			if !c.list && entry == "" {
				return usageError{errors.New(`name one client as an address, a prefix, user NAME or agent PART, such as limitctl ban user mallory --for 1h; or write --list alone`)}
			}
			if err := c.check(cmd, args); err != nil {
				return err
			}
			if _, err := access.Parse(strings.NewReader(entry), nil); err != nil {
				return usageError{fmt.Errorf("%s: %w", shown(entry), err)}
			}
			if strings.HasSuffix(strings.TrimSuffix(entry, `"`), "*") && !c.ends {
				fmt.Fprintln(cmd.ErrOrStderr(), "The star is a part of the entry: bans have no patterns.")
			}
			s, err := c.connect()
			if err != nil {
				return err
			}
			defer s.end()
			bans, err := s.bans(cmd.Context())
			if err != nil {
				return err
			}
			name := words.Printable(entry)
			if c.list {
				return printList(cmd, "bans", shownBans(bans.List()), c.json)
			}
			if c.ends {
				return c.make(cmd, "This lifts the ban of "+name+" on all instances.", func() error {
					was, err := bans.Unban(cmd.Context(), entry, c.by)
					if err == nil && !was {
						err = fmt.Errorf("%w: no ban of %s: limitctl ban --list lists them", errNothing, name)
					}
					return err
				}, "lifted: "+name)
			}
			length, words := c.lasting()
			return c.make(cmd, fmt.Sprintf("This bars %s on all instances %s.", name, words), func() error {
				return bans.Ban(cmd.Context(), entry, length, c.by, c.reason)
			}, fmt.Sprintf("banned: %s %s, by %s", name, words, shown(c.by)))
		},
	}
	c.flags(cmd, false, "ban", "lift")
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

// bansOf returns the bans of the client that a key is of: an address, a prefix, a user, or a key
// of rules that has such values.
func (s *session) bansOf(ctx context.Context, key string, rules []*live.Rule) (matching []access.Ban, err error) {
	bans, err := s.bans(ctx)
	if err != nil {
		return nil, err
	}
	values := []typedkey.Value{{Kind: grammar.IP, Text: key}, {Kind: grammar.User, Text: key}}
	for _, r := range rules {
		values = append(values, r.Parts(key)...)
	}
	var networks limit.Proxies
	var users []access.Entry
	for _, v := range values {
		switch v.Kind {
		case grammar.IP:
			network, err := netip.ParsePrefix(v.Text)
			if address := clientip.Parse(v.Text); address.IsValid() {
				network, err = address.Prefix(address.BitLen())
			}
			if err == nil {
				networks.Trusted = append(networks.Trusted, clientip.Prefix(network))
			}
		case grammar.User:
			if e, err := access.ParseEntry("user " + strconv.Quote(strings.TrimSpace(v.Text))); err == nil {
				users = append(users, e)
			}
		}
	}
	for _, b := range bans.List() {
		// An entry has a client in common with a network as it would with a proxy.
		if e, err := access.ParseEntry(b.Entry); err == nil && (e.Proxy(networks).IsValid() || slices.Contains(users, e)) {
			matching = append(matching, b)
		}
	}
	return matching, nil
}

type shownBan struct {
	Entry string `json:"entry"`
	terms
}

func (b shownBan) String() string { return words.Printable(b.Entry) + b.terms.String() }

func shownBans(bans []access.Ban) []shownBan {
	list := []shownBan{}
	for _, b := range bans {
		list = append(list, shownBan{b.Entry, terms{b.Until.UTC(), b.By, b.Reason, b.At}})
	}
	return list
}
