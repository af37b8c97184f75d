package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/routelimit/limit/cmd/limitctl/replay"
)

// Text writes the report for a terminal.
func (r *Report) Text(w io.Writer) error {
	t := &text{Report: r}
	for _, s := range r.Summary() {
		t.line("%s", s)
	}
	t.notes()
	if r.Requests > 0 {
		t.when()
		t.routes()
		t.rules("Rules", r.Policies)
		t.clients()
		t.looks()
		t.comparison()
		t.suggestions()
	}
	t.samples()
	_, err := io.WriteString(w, t.String())
	return err
}

type text struct {
	*Report
	strings.Builder
}

func (t *text) line(format string, args ...any) { fmt.Fprintf(&t.Builder, format+"\n", args...) }

func (t *text) heading(name string) { t.line("\n%s", strings.ToUpper(name)) }

// more says how many entries of a list are not shown.
func (t *text) more(all int) {
	if rest := all - t.top(); rest > 0 {
		t.line("… and %d more: see --top, --json and --html", rest)
	}
}

func (t *text) notes() {
	if len(t.Notes) == 0 {
		return
	}
	t.heading("Notes")
	for _, note := range t.Notes {
		t.line("- %s", shorten(note, 500))
	}
}

// bars are the heights of a plot in one line.
var bars = []rune(" ▁▂▃▄▅▆▇█")

func (t *text) when() {
	if t.Refused == 0 {
		return
	}
	list, gaps := columns(t.Buckets, t.Width, 60)
	most := int64(0)
	for _, c := range list {
		most = max(most, c.Refused)
	}
	plot := make([]rune, len(list))
	for i, c := range list {
		plot[i] = bars[(c.Refused*int64(len(bars)-1)+most-1)/most]
	}
	t.heading("When")
	t.line("%s", busiest(list))
	t.line("|%s| %s a column%s", string(plot), duration(list[0].Width), map[bool]string{true: ", without the time between requests"}[gaps])
	if stay := t.Stay(); stay != "" {
		t.line("%s", stay)
	}
}

func (t *text) routes() {
	t.heading("Routes")
	table := newTable("route", "requests>", "refused>", "share>")
	switch {
	case t.Policy == "":
		table = newTable("route", "requests>")
	case t.Comparison != nil:
		table = newTable("route", "requests>", "refused>", "share>", "only old>", "only new>")
	}
	for _, r := range t.Routes[:min(t.top(), len(t.Routes))] {
		table.row(shorten(r.Route, 48), number(r.Requests), number(r.Refused), percent(r.Refused, r.Requests), number(r.OnlyOld), number(r.OnlyNew))
	}
	table.write(t)
	t.more(len(t.Routes))
}

func (t *text) rules(heading string, policies []replay.PolicyResult) {
	if len(policies) == 0 {
		return
	}
	t.heading(heading)
	table := newTable("policy", "rule", "decided>", "refused>", "alone>", "refused most")
	for _, p := range policies {
		for _, r := range p.Rules {
			refused := number(r.Refused)
			switch {
			case leftOut(p, r):
				refused = "left out"
			case r.Shadowed > 0:
				refused += fmt.Sprintf(" (would: %s)", number(r.Shadowed))
			case r.Marked > 0:
				refused += fmt.Sprintf(" (marked: %s)", number(r.Marked))
			}
			key := ""
			if len(r.Keys) > 0 {
				key = fmt.Sprintf("%s (%s)", shorten(r.Keys[0].Key, 40), number(r.Keys[0].Refused))
			}
			table.row(shorten(p.Name, 24), shorten(r.Rule, 48), number(p.Requests), refused, number(r.Alone), key)
		}
	}
	table.write(t)
}

func (t *text) clients() {
	if len(t.Refusals) == 0 {
		return
	}
	t.heading("Clients")
	table := newTable("client", "requests>", "refused>", "first refused", "last refused", "longest>", "looks like", "agent")
	for _, c := range t.Refusals[:min(t.top(), len(t.Refusals))] {
		table.row(shorten(c.Address, 39), number(c.Requests), number(c.Refused), moment(c.First), moment(c.Last), longest(c),
			strings.Join(c.Looks, ", "), shorten(c.Agent, 40))
	}
	table.write(t)
	if rest := t.RefusedClients - int64(min(t.top(), len(t.Refusals))); rest > 0 {
		t.line("… and %s more: see --top", number(rest))
	}
}

func (t *text) looks() {
	if len(t.Looks) == 0 {
		return
	}
	t.heading("Refused clients by what they look like")
	table := newTable("looks like", "clients>", "refused requests>")
	for _, l := range t.Looks {
		table.row(lookName(l.Name), number(l.Clients), number(l.Refused))
	}
	table.write(t)
}

func lookName(name string) string {
	if name == "none" {
		return "nothing special"
	}
	return name
}

func (t *text) comparison() {
	c := t.Comparison
	if c == nil {
		return
	}
	t.heading("What the new policy changes")
	table := newTable("requests", "count>", "share>")
	for _, row := range outcomes(c) {
		table.row(row.Name, number(row.Requests), percent(row.Requests, t.Requests))
	}
	table.write(t)
	t.rules("New rules", c.Policies)
	if len(c.NewlyRefused) == 0 {
		return
	}
	t.heading("Clients that only the new policy refuses")
	table = newTable("client", "requests>")
	for _, k := range c.NewlyRefused[:min(t.top(), len(c.NewlyRefused))] {
		table.row(shorten(k.Key, 39), number(k.Refused))
	}
	table.write(t)
	t.more(len(c.NewlyRefused))
}

// suggestedRoutes is how many routes the terminal shows suggestions for.
const suggestedRoutes = 5

func (t *text) suggestions() {
	if len(t.Suggestions) == 0 {
		return
	}
	t.heading("Suggestions")
	t.line("P50 to MAX: the most requests that a client sent within a window, for 50%%, 90%%, 99%% and all of the clients.")
	t.line("Each rule refuses at most %s of the clients; --share chooses another share, --html has them all.", shareText(t.Share))
	for _, s := range t.Suggestions[:min(suggestedRoutes, len(t.Suggestions))] {
		t.line("\n%s, per %s: %s of %s%s", shorten(s.Route, 60), s.Key, count(s.Requests, "request"), count(s.Clients, keyName(s.Key)), sampled(s.Sampled))
		table := newTable("window>", "p50>", "p90>", "p99>", "max>", "rule", "refuses clients>", "requests>")
		for _, w := range s.Windows {
			for _, c := range w.Choices {
				if c.Share == t.Share {
					table.row(duration(w.Window), number(w.P50), number(w.P90), number(w.P99), number(w.Max), c.Rule, number(c.RefusedClients), number(c.RefusedRequests))
					break
				}
			}
		}
		table.write(t)
	}
	if rest := len(t.Suggestions) - suggestedRoutes; rest > 0 {
		t.line("… and for %d more routes: see --json and --html", rest)
	}
}

func keyName(key string) string {
	if key == "user" {
		return "user"
	}
	return "client"
}

func shareText(share float64) string {
	return fmt.Sprintf("%g%%", 100*share)
}

func sampled(part float64) string {
	if part >= 1 {
		return ""
	}
	return fmt.Sprintf(", estimated from %s of them", shareText(part))
}

func (t *text) samples() {
	if len(t.Samples) == 0 {
		return
	}
	t.heading("Bad lines")
	for _, s := range t.Samples[:min(5, len(t.Samples))] {
		t.line("line %d: %s: %s", s.Line, s.Problem, shorten(s.Text, 120))
	}
}

// A table is rows of cells. A heading that ends in > aligns its column to the right.
type table struct {
	right []bool
	rows  [][]string
}

func newTable(headings ...string) *table {
	t := &table{right: make([]bool, len(headings))}
	for i, h := range headings {
		headings[i], t.right[i] = strings.CutSuffix(h, ">")
		headings[i] = strings.ToUpper(headings[i])
	}
	t.rows = [][]string{headings}
	return t
}

// row adds a row. Cells beyond the headings are left out.
func (t *table) row(cells ...string) { t.rows = append(t.rows, cells[:len(t.right)]) }

func (t *table) write(w io.Writer) {
	widths := make([]int, len(t.right))
	for _, row := range t.rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range t.rows {
		cells := slices.Clone(row)
		for i, cell := range cells {
			space := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if cells[i] = cell + space; t.right[i] {
				cells[i] = space + cell
			}
		}
		fmt.Fprintln(w, strings.TrimRight(strings.Join(cells, "  "), " "))
	}
}
