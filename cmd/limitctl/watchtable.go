package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/routelimit/limit/cmd/limitctl/internal/words"
	"github.com/routelimit/limit/ops/feed"
)

// A watchTable prints, each time that a span has passed, which keys were refused in it.
type watchTable struct {
	to    io.Writer
	zone  *time.Location
	every time.Duration
	sort  string  // a key of orders
	of    subject // what to count

	begun                             time.Time
	refused, admitted                 int64
	refusedNotShown, admittedNotShown int64
	counts                            map[subject]int64
	uncounted                         int64 // refusals of keys that were too many
}

const (
	tableRows   = 20
	tableCounts = 10_000 // keys; clients choose them
)

// orders are those of the rows of a table. Rows that are equal in one are sorted by the others.
var orders = map[string]func(a, b refusedKey) int{
	"refused": func(a, b refusedKey) int { return cmp.Compare(b.n, a.n) },
	"policy":  func(a, b refusedKey) int { return strings.Compare(a.policy, b.policy) },
	"rule":    func(a, b refusedKey) int { return strings.Compare(a.rule, b.rule) },
	"key":     func(a, b refusedKey) int { return strings.Compare(a.key, b.key) },
}

// A refusedKey is how often a rule refused a key.
type refusedKey struct {
	subject
	n int64
}

func (t *watchTable) event(_ string, e *feed.Event) error {
	switch {
	case e.Outcome == "given back": // it was counted when it was admitted
		return nil
	case e.Allowed:
		t.admitted++
		return nil
	}
	t.refused++
	if len(e.Rules) == 0 { // such as of a barred client
		t.count(subject{policy: e.Policy})
	}
	for _, r := range e.Rules {
		if t.of.matches(e.Policy, r.Name, r.Key) {
			t.count(subject{e.Policy, r.Name, r.Key})
		}
	}
	return nil
}

func (t *watchTable) count(key subject) {
	if _, known := t.counts[key]; !known && len(t.counts) >= tableCounts {
		t.uncounted++
		return
	}
	if t.counts == nil {
		t.counts = make(map[subject]int64)
	}
	t.counts[key]++
}

func (t *watchTable) missed(_ string, _ time.Time, admitted, refused int64) error {
	t.admittedNotShown, t.refusedNotShown = t.admittedNotShown+admitted, t.refusedNotShown+refused
	return nil
}

// tick prints the table if it is due.
func (t *watchTable) tick(now time.Time) error {
	if t.begun.IsZero() {
		t.begun = now
	}
	if now.Sub(t.begun) < t.every {
		return nil
	}
	rows := make([]refusedKey, 0, len(t.counts))
	for key, n := range t.counts {
		rows = append(rows, refusedKey{key, n})
	}
	slices.SortFunc(rows, func(a, b refusedKey) int {
		return cmp.Or(orders[t.sort](a, b), orders["refused"](a, b), orders["policy"](a, b), orders["rule"](a, b), orders["key"](a, b))
	})
	w := tabwriter.NewWriter(t.to, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s  in %s: %s refused and %s admitted", now.In(t.zone).Format(time.TimeOnly), words.Duration(now.Sub(t.begun)), words.Number(t.refused), words.Number(t.admitted))
	if t.refusedNotShown+t.admittedNotShown > 0 {
		fmt.Fprintf(w, "; %s and %s not counted, of all policies", words.Number(t.refusedNotShown), words.Number(t.admittedNotShown))
	}
	fmt.Fprintln(w)
	if len(rows) > 0 {
		fmt.Fprintln(w, "REFUSED\tPOLICY\tRULE\tKEY")
	}
	for _, row := range rows[:min(len(rows), tableRows)] {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", words.Number(row.n), shortened(row.policy), shortened(cmp.Or(row.rule, "-")), shortened(cmp.Or(row.key, "-")))
	}
	if len(rows) > tableRows {
		fmt.Fprintf(w, "and %s\n", words.Count(int64(len(rows)-tableRows), "more key"))
	}
	if t.uncounted > 0 {
		fmt.Fprintf(w, "and %s of keys beyond these\n", words.Count(t.uncounted, "refusal"))
	}
	fmt.Fprintln(w)
	*t = watchTable{to: t.to, zone: t.zone, every: t.every, sort: t.sort, of: t.of, begun: now}
	return w.Flush()
}
