package policyfile

import (
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/ops/access"
)

// An entry is one of package access, or the name of another list.
type entry struct {
	access.Entry
	name string // of a list; "" for one of package access
	list string // in which it stands; "" if it stands in exempt or barred
	node *yaml.Node
}

// clients are the entries of exempt or barred, without names, and as a list of package access.
type clients struct {
	entries []entry
	*access.List
}

// listName is the form of a name, which no entry has.
var listName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,63}$`)

var entryWords = []string{"user", "agent"}

// unlogged is for lists that Policies or Explain check against the proxies themselves.
var unlogged = &access.Options{Log: slog.New(slog.DiscardHandler)}

// lists reads the lists of a file, by name. They may be in each other.
func (d *decoder) lists(n *yaml.Node) map[string][]entry {
	all, members := make(map[string][]entry), d.members(n, "lists")
	for _, f := range members {
		if !listName.MatchString(f.name) || slices.Contains(entryWords, f.name) {
			d.wrong(f.node, "%s cannot name a list: write a letter, and then letters, digits, - and _, and not user or agent", quoted(f.name))
		}
		all[f.name] = nil // so that lists before it may name it
	}
	for _, f := range members {
		all[f.name] = d.items(f.value, "a list of clients", f.name, all)
	}
	return all
}

// items reads a list, and reports entries that are none, and names of no list.
func (d *decoder) items(n *yaml.Node, what, in string, all map[string][]entry) (items []entry) {
	for _, n := range d.texts(n, what, `"10.0.0.0/8"`) {
		text := n.Value
		switch _, named := all[text]; {
		case named:
			items = append(items, entry{name: text, list: in, node: n})
			continue
		case listName.MatchString(text) && !slices.Contains(entryWords, text):
			d.wrong(n, "no list %s: write the name of one of lists, or an entry such as 10.0.0.0/8 or user alice", quoted(text))
			continue
		case strings.Contains(text, "\n"):
			d.wrong(n, "several lines: write each entry as a text of its own")
			continue
		}
		e, err := access.ParseEntry(text)
		switch wrong := new(access.ParseError); {
		case errors.As(err, &wrong):
			d.wrongIn(n, len(string([]rune(text)[:wrong.Column-1])), "%s", wrong.Problem)
		case err != nil:
			d.wrong(n, "no entry: write an address, a prefix, user and a name, agent, or the name of a list")
		default:
			items = append(items, entry{Entry: e, list: in, node: n})
		}
	}
	return items
}

// entries returns the entries of exempt or barred with those of lists, each list once.
func (d *decoder) entries(n *yaml.Node, what string, all map[string][]entry) clients {
	var entries []entry
	seen := make(map[string]bool)
	var add func(items []entry)
	add = func(items []entry) {
		for _, item := range items {
			switch {
			case item.name == "":
				entries = append(entries, item)
			case !seen[item.name]:
				seen[item.name] = true
				add(all[item.name])
			}
		}
	}
	add(d.items(n, what, "", all))
	list, err := build(entries)
	if err != nil {
		d.wrong(n, "%v", err)
	}
	return clients{entries, list}
}

// build returns entries as a list of package access.
func build(entries []entry) (*access.List, error) {
	plain := make([]access.Entry, len(entries))
	for i, e := range entries {
		plain[i] = e.Entry
	}
	return access.NewList(plain, unlogged)
}

// exemptProxies describes the entries of exempt that contain a trusted proxy, or are within a
// trusted prefix: "10.0.0.0/8 (policy.yaml:3:10) contains the trusted proxy 10.0.0.5/32".
func (f *File) exemptProxies(proxies limit.Proxies) (found []string) {
	for _, e := range f.exempt.entries {
		if proxy := e.Proxy(proxies); proxy.IsValid() {
			found = append(found, fmt.Sprintf("%s (%s) contains the trusted proxy %s", e, f.source.at(e.node, 0), proxy))
		}
	}
	return found
}
