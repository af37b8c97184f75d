package policyfile

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/ops/access"
)

// A named is a list with a name.
type named struct {
	name  string
	at    int
	nodes []*node
}

// An entry is one of package access.
type entry struct {
	text string
	list string // in which it stands; "" if it stands in exempt or barred
	node *node
}

// listName is the form of a name, which no entry has.
var listName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,63}$`)

var entryWords = []string{"user", "agent", "header"}

// unlogged is for lists that Policies or Explain check against the proxies themselves.
var unlogged = &access.Options{Log: slog.New(slog.DiscardHandler)}

// lists reads the lists of a file.
func (d *decoder) lists(n *node) map[string]*named {
	lists := make(map[string]*named)
	if n == nil {
		return lists
	}
	for _, f := range d.members(n, "lists") {
		if !listName.MatchString(f.name) || slices.Contains(entryWords, f.name) {
			d.wrongf(f.at, "%s cannot name a list: write a letter, and then letters, digits, - and _, and not user, agent or header", quoted(f.name))
		}
		lists[f.name] = &named{f.name, f.at, d.texts(f.value, "a list of clients", `"10.0.0.0/8"`, false)}
	}
	cycles := cycles{decoder: d, lists: lists, states: make(map[string]int)}
	for _, f := range n.fields {
		l := lists[f.name]
		if l == nil || l.at != f.at {
			continue // reported
		}
		d.check(l.nodes, lists)
		if cycles.states[f.name] == 0 {
			cycles.visit(l)
		}
	}
	return lists
}

// check reports entries that are none, and references to lists that are not there.
func (d *decoder) check(nodes []*node, lists map[string]*named) {
	var b strings.Builder
	reported := make(map[*node]bool)
	for _, n := range nodes {
		reported[n] = true
		switch {
		case listName.MatchString(n.text):
			if lists[n.text] == nil && !slices.Contains(entryWords, n.text) {
				d.wrongf(n.at, "no list %s: write the name of one of lists, or an entry such as 10.0.0.0/8 or user alice", quoted(n.text))
				continue
			}
		case strings.TrimSpace(n.text) == "" || strings.HasPrefix(strings.TrimSpace(n.text), "#"):
			d.wrong(n.at, "no entry: write an address, a prefix, user and a name, agent, header, or the name of a list")
			continue
		case strings.Contains(n.text, "\n"):
			d.wrong(n.at, "several lines: write each entry as a text of its own")
			continue
		}
		if reported[n] = false; lists[n.text] == nil {
			b.WriteString(n.text + "\n")
		}
	}
	if _, err := access.Parse(strings.NewReader(b.String()), unlogged); err == nil {
		return
	}
	for _, n := range nodes { // to find all mistakes, and their places
		if lists[n.text] != nil || reported[n] {
			continue
		}
		_, err := access.Parse(strings.NewReader(n.text), unlogged)
		for _, err := range leaves(err) {
			var wrong *access.ParseError
			if !errors.As(err, &wrong) {
				d.wrong(n.at, err.Error())
				continue
			}
			d.wrong(d.inside(n, byteOf(n.text, wrong.Column)), wrong.Problem)
		}
	}
}

// byteOf returns the offset of a column.
func byteOf(text string, column int) int {
	at := 0
	for ; column > 1 && at < len(text); column-- {
		_, size := utf8.DecodeRuneInString(text[at:])
		at += size
	}
	return at
}

// cycles finds lists that are within themselves.
type cycles struct {
	*decoder
	lists  map[string]*named
	states map[string]int
}

const (
	visiting = 1 + iota
	visited
)

// visit follows the references of a list, and reports those that lead back.
func (c *cycles) visit(l *named) {
	c.states[l.name] = visiting
	for _, n := range l.nodes {
		next := c.lists[n.text]
		switch {
		case next == nil:
		case c.states[n.text] == visiting:
			c.wrongf(n.at, "list %s is within itself: remove it here, or what leads from it to list %s", quoted(n.text), quoted(l.name))
		case c.states[n.text] == 0:
			c.visit(next)
		}
	}
	c.states[l.name] = visited
}

// entries returns the entries of exempt or barred, each once, with those of lists.
func (d *decoder) entries(n *node, what string, lists map[string]*named) (entries []entry) {
	nodes := d.texts(n, what, `"10.0.0.0/8"`, false)
	d.check(nodes, lists)
	seen := make(map[string]bool)
	var add func(nodes []*node, list string)
	add = func(nodes []*node, list string) {
		for _, n := range nodes {
			next := lists[n.text]
			switch {
			case next == nil:
				entries = append(entries, entry{n.text, list, n})
			case !seen[n.text]:
				seen[n.text] = true
				add(next.nodes, n.text)
			}
		}
	}
	add(nodes, "")
	if len(d.errs) == 0 {
		d.build(entries)
	}
	return entries
}

// build returns entries as a list of package access.
func (d *decoder) build(entries []entry) *access.List {
	var b strings.Builder
	for _, e := range entries {
		b.WriteString(e.text + "\n")
	}
	l, err := access.Parse(strings.NewReader(b.String()), unlogged)
	for _, err := range leaves(err) {
		var wrong *access.ParseError
		if errors.As(err, &wrong) && wrong.Line <= len(entries) {
			d.wrong(entries[wrong.Line-1].node.at, wrong.Problem)
		} else {
			d.wrong(0, err.Error())
		}
	}
	return l
}

// exemptProxies describes the entries of exempt that contain a trusted proxy, or are
// within a trusted prefix: "10.0.0.0/8 (policy.yaml:3:10) contains the proxy 10.0.0.5/32".
func (f *File) exemptProxies(proxies limit.Proxies) (found []string) {
	for _, e := range f.exempt {
		text := strings.Trim(strings.Fields(e.text)[0], `"`)
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			address, _ := netip.ParseAddr(text) // not valid for a user, an agent or a header
			prefix = netip.PrefixFrom(address.Unmap(), address.Unmap().BitLen())
		}
		for _, proxy := range proxies.Trusted {
			if prefix.Overlaps(proxy) {
				found = append(found, fmt.Sprintf("%s (%s) contains the trusted proxy %s", text, f.at(f.source.inside(e.node, 0)), proxy))
				break
			}
		}
	}
	return found
}

// users returns an entry of a user, if there is one.
func (f *File) users() (e entry, ok bool) {
	for _, e := range append(f.exempt[:len(f.exempt):len(f.exempt)], f.barred...) {
		if strings.Fields(e.text)[0] == "user" {
			return e, true
		}
	}
	return entry{}, false
}
