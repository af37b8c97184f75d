package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/routelimit/limit/cmd/limitctl/internal/words"
	"github.com/routelimit/limit/ops/feed"
)

type watchJSON struct{ to io.Writer }

func (j *watchJSON) event(instance string, e *feed.Event) error {
	return words.WriteJSON(j.to, struct {
		Instance string `json:"instance"`
		*feed.Event
	}{instance, e}, false)
}

func (j *watchJSON) missed(instance string, _ time.Time, admitted, refused int64) error {
	return words.WriteJSON(j.to, struct {
		Instance string `json:"instance"`
		Admitted int64  `json:"admitted_not_shown"`
		Refused  int64  `json:"refused_not_shown"`
	}{instance, admitted, refused}, false)
}

// watchLines prints lines in words. Their columns grow as wide as what was printed.
type watchLines struct {
	to   io.Writer
	zone *time.Location
	wide [2]int // instance, policy
}

func (l *watchLines) event(instance string, e *feed.Event) error {
	policy := e.Policy
	if e.Method != "" && !strings.HasPrefix(policy, e.Method+" ") {
		policy += " (" + e.Method + ")"
	}
	line := fmt.Sprintf("%s  %s  %-8s  %s", l.head(instance, e.At), l.column(1, policy), words.Cut(e.Outcome, wide), details(e))
	_, err := fmt.Fprintln(l.to, strings.TrimRight(line, " "))
	return err
}

func (l *watchLines) missed(instance string, at time.Time, admitted, refused int64) error {
	var parts []string
	if refused > 0 {
		parts = append(parts, words.Number(refused)+" refused")
	}
	if admitted > 0 {
		parts = append(parts, words.Number(admitted)+" admitted")
	}
	_, err := fmt.Fprintf(l.to, "%s  %s not shown, of all policies\n", l.head(instance, at), strings.Join(parts, " and "))
	return err
}

func (l *watchLines) head(instance string, at time.Time) string {
	return at.In(l.zone).Format("15:04:05.000") + " " + l.column(0, instance)
}

func (l *watchLines) column(i int, text string) string {
	const most = 40
	text = words.Cut(text, 300)
	n := utf8.RuneCountInString(text)
	l.wide[i] = max(l.wide[i], min(n, most))
	return text + strings.Repeat(" ", max(0, l.wide[i]-n))
}

// details says which rules refused or marked a request, and how it was decided if not by
// the store.
func details(e *feed.Event) string {
	var parts []string
	for i := range e.Rules {
		r := &e.Rules[i]
		text := words.Cut(r.Name, wide)
		if r.Key != "" {
			text += " " + shortened(cmp.Or(r.Shown, r.Key))
		}
		text += fmt.Sprintf("  %s in %s", words.Number(r.Limit), words.Duration(time.Duration(r.WindowMS)*time.Millisecond))
		if r.Remaining > 0 {
			text += ", " + words.Number(r.Remaining) + " left"
		}
		parts = append(parts, text+again(r.RetryAfterMS))
	}
	if len(e.Rules) == 0 && !e.Allowed {
		parts = append(parts, strings.TrimPrefix(again(e.RetryAfterMS), ", "))
	}
	switch e.Mode {
	case "exact", "remembered": // the store decided
	default:
		parts = append(parts, "mode "+words.Cut(e.Mode, wide))
	}
	return strings.Join(parts, "; ")
}

func again(ms int64) string {
	switch {
	case ms < 0:
		return ", no wait helps"
	case ms == 0:
		return ""
	}
	return ", again in " + words.Duration(time.Duration(ms)*time.Millisecond)
}

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
	counts                            map[subject]int64 // how often rules refused keys
	uncounted                         int64             // refusals of keys that were too many
}

const (
	tableRows   = 20
	tableCounts = 10_000 // keys; clients choose them
)

// orders are those of the rows of a table. Rows that are equal in one are sorted by the others.
var orders = map[string]func(t *watchTable, a, b subject) int{
	"refused": func(t *watchTable, a, b subject) int { return cmp.Compare(t.counts[b], t.counts[a]) },
	"policy":  func(_ *watchTable, a, b subject) int { return strings.Compare(a.policy, b.policy) },
	"rule":    func(_ *watchTable, a, b subject) int { return strings.Compare(a.rule, b.rule) },
	"key":     func(_ *watchTable, a, b subject) int { return strings.Compare(a.key, b.key) },
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
		if t.of.refusedBy(e.Policy, &r) {
			t.count(subject{e.Policy, r.Name, cmp.Or(r.Shown, r.Key)})
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

// tick prints the table if it is due. It is called at least once a second while an instance
// publishes.
func (t *watchTable) tick(now time.Time) error {
	if t.begun.IsZero() {
		t.begun = now
	}
	if now.Sub(t.begun) < t.every {
		return nil
	}
	rows := slices.SortedFunc(maps.Keys(t.counts), func(a, b subject) int {
		for _, order := range []string{t.sort, "refused", "policy", "rule", "key"} {
			if c := orders[order](t, a, b); c != 0 {
				return c
			}
		}
		return 0
	})
	w := tabwriter.NewWriter(t.to, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s  in %s: %s refused and %s admitted", now.In(t.zone).Format(time.TimeOnly), words.Duration(now.Sub(t.begun)),
		words.Number(t.refused), words.Number(t.admitted))
	if t.refusedNotShown+t.admittedNotShown > 0 {
		fmt.Fprintf(w, "; %s and %s not counted, of all policies", words.Number(t.refusedNotShown), words.Number(t.admittedNotShown))
	}
	fmt.Fprintln(w)
	if len(rows) > 0 {
		fmt.Fprintln(w, "REFUSED\tPOLICY\tRULE\tKEY")
	}
	for _, row := range rows[:min(len(rows), tableRows)] {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", words.Number(t.counts[row]), shortened(row.policy), shortened(cmp.Or(row.rule, "-")), shortened(cmp.Or(row.key, "-")))
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
