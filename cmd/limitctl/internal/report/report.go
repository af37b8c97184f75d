// Package report shows what a replay of logs found: as tables for a terminal, or as JSON.
package report

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/routelimit/limit/cmd/limitctl/internal/words"
	"github.com/routelimit/limit/cmd/limitctl/replay"
	"github.com/routelimit/limit/cmd/limitctl/replay/accesslog"
)

// A Report is a result and what it is about. All texts of the result may come from
// clients, and are made harmless wherever they are shown.
type Report struct {
	*replay.Result

	Policy  string  // the file or the rules that decided; "" if nothing did
	Compare string  // the file that is compared; "" if there is none
	Top     int     // how many entries a list shows
	Share   float64 // of clients, that the rules suggested in the terminal may refuse
	Stopped string  // why the log was not read to its end; "" if it was
}

// Summary returns the answer in sentences.
func (r *Report) Summary() (sentences []string) {
	add := func(format string, args ...any) { sentences = append(sentences, fmt.Sprintf(format, args...)) }
	if r.Stopped != "" {
		add("Stopped before the end of the log (%s): this is about what was read until then.", r.Stopped)
	}
	switch {
	case r.Lines == 0:
		add("The log is empty: there are no lines in %s.", r.files())
		return sentences
	case r.BadLines > 0:
		add("%s in %s, %s of them read as %s.", words.Count(r.Lines, "line"), r.files(), words.Percent(r.Lines-r.BadLines, r.Lines), r.formats())
		for _, line := range r.Samples[:min(1, len(r.Samples))] {
			add("The first of %s is line %d: %s", words.Count(r.BadLines, "unread line"), line.Line, words.Cut(line.Text, 60))
		}
	default:
		add("%s in %s, all read as %s.", words.Count(r.Lines, "line"), r.files(), r.formats())
	}
	if r.NotHTTP > 0 {
		add("Skipped %s with an invalid request line.", words.Count(r.NotHTTP, "line"))
	}
	if r.Requests == 0 {
		add("There is no request to decide.")
		return sentences
	}
	add("%s of %s, from %s to %s UTC (%s).", words.Count(r.Requests, "request"), words.Count(r.Clients, "client"), moment(r.From), moment(r.To), words.Duration(r.To.Sub(r.From)))
	decided := int64(0)
	for _, p := range r.Policies {
		decided += p.Requests + p.Listed
	}
	absent, all := withoutKey(r.Policies)
	switch {
	case r.Policy == "":
		add("No policy was given, so nothing is refused.")
	case decided == 0:
		add("%s matches no request of the log, so nothing is refused.", words.Printable(r.Policy))
	case all:
		add("This log cannot say what %s would have refused: no request has the key of %s.", words.Printable(r.Policy), ruleNames(absent))
		absent = nil
	case r.Refused == 0:
		add("%s would have refused nothing.", words.Printable(r.Policy))
	default:
		add("%s would have refused %s (%s), of %s (%s).", words.Printable(r.Policy), words.Count(r.Refused, "request"), words.Percent(r.Refused, r.Requests),
			words.Count(r.RefusedClients, "client"), words.Percent(r.RefusedClients, r.Clients))
	}
	if len(absent) > 0 {
		add("That is without %s: no request of this log has the key. See the notes.", ruleNames(absent))
	}
	if r.RefusedNoKey > 0 {
		add("%s of the refused requests (%s) came without the key of a rule that refused them. All requests without the key share one quota: see the notes.",
			words.Number(r.RefusedNoKey), words.Percent(r.RefusedNoKey, r.Refused))
	}
	if r.Barred > 0 {
		add("%s of the refused requests would have met a list of barred clients.", words.Number(r.Barred))
	}
	if r.Exempt > 0 {
		add("%s would have been exempt from the rules.", words.Count(r.Exempt, "request"))
	}
	if c := r.Comparison; c != nil {
		add("%s would refuse %s more, and admit %s that %s refuses.", words.Printable(r.Compare), words.Count(c.OnlyNew, "request"), words.Number(c.OnlyOld), words.Printable(r.Policy))
		if absent, _ := withoutKey(c.Policies); len(absent) > 0 {
			add("That is without %s of the new policy: no request of this log has the key. See the notes.", ruleNames(absent))
		}
	}
	return sentences
}

// withoutKey returns the rules that were left out since no request had their key, and
// whether those are all that decided a request.
func withoutKey(policies []replay.PolicyResult) (rules []string, all bool) {
	all = true
	for _, p := range policies {
		for _, rule := range p.Rules {
			switch {
			case p.Requests == 0:
			case leftOut(p, rule):
				rules = append(rules, rule.Rule)
			default:
				all = false
			}
		}
	}
	return rules, all && len(rules) > 0
}

// leftOut reports whether a rule decided no request of its policy.
func leftOut(p replay.PolicyResult, r replay.RuleResult) bool {
	return p.Requests > 0 && r.LeftOut == p.Requests
}

// ruleNames lists rules, at most three of them.
func ruleNames(rules []string) string {
	return few(rules, "more rule", func(rule string) string { return fmt.Sprintf("%q", words.Cut(rule, 60)) })
}

// files names the files of the log of which something was read.
func (r *Report) files() string {
	read := slices.DeleteFunc(slices.Clone(r.Files), func(f accesslog.File) bool { return f.Error != "" && f.Lines == 0 })
	if len(read) == 0 {
		return "the log"
	}
	return few(read, "more file", func(f accesslog.File) string {
		if f.Path == "-" {
			return "the standard input"
		}
		return words.Cut(f.Path, 60)
	})
}

// formats names the formats of the log, the most frequent one first.
func (r *Report) formats() string {
	names := slices.SortedFunc(maps.Keys(r.Formats), func(a, b string) int {
		return cmp.Or(cmp.Compare(r.Formats[b], r.Formats[a]), strings.Compare(a, b))
	})
	if len(names) == 0 {
		return "requests"
	}
	return few(names, "more format", func(name string) string {
		if strings.Contains(name, " ") { // a log_format, or the fields of JSON
			return "the given format"
		}
		return words.Cut(name, 60)
	})
}

// few lists at most three things.
func few[T any](all []T, more string, name func(T) string) string {
	var names []string
	for _, thing := range all[:min(3, len(all))] {
		names = append(names, name(thing))
	}
	text := strings.Join(names, ", ")
	if rest := len(all) - len(names); rest > 0 {
		text += " and " + words.Count(int64(rest), more)
	}
	return text
}

// columns joins buckets, which have a width, to at most n of equal, larger width.
func columns(buckets []replay.Bucket, width time.Duration, n int) (list []replay.Bucket, wider time.Duration) {
	first, last := buckets[0].Start, buckets[len(buckets)-1].Start
	total := int(last.Sub(first)/width) + 1
	per := (total + n - 1) / n
	list, wider = make([]replay.Bucket, (total+per-1)/per), time.Duration(per)*width
	for i := range list {
		list[i].Start = first.Add(time.Duration(i) * wider)
	}
	for _, b := range buckets {
		c := &list[int(b.Start.Sub(first)/width)/per]
		c.Requests += b.Requests
		c.Refused += b.Refused
	}
	return list, wider
}

// moment writes a time to the second, in UTC.
func moment(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return t.UTC().Format(time.DateTime)
}

//go:embed page.txt
var page string

var pageTemplate = template.Must(template.New("page").Funcs(functions).Parse(strings.ReplaceAll(page, " ¦ ", "\t")))

// functions make texts of clients printable: terminals obey characters that move a cursor.
var functions = template.FuncMap{
	"cut":      func(n int, s string) string { return words.Cut(s, n) },
	"first":    first,
	"more":     func(n int, list any) int64 { return int64(max(0, reflect.ValueOf(list).Len()-n)) },
	"number":   words.Number,
	"count":    words.Count,
	"percent":  words.Percent,
	"share":    func(share float64) string { return fmt.Sprintf("%g%%", 100*share) },
	"minute":   func(t time.Time) string { return t.UTC().Format("01-02 15:04") },
	"duration": words.Duration,
	"leftOut":  leftOut,
	"rules":    rulesOf,
}

func first(n int, list any) any {
	v := reflect.ValueOf(list)
	return v.Slice(0, min(n, v.Len())).Interface()
}

// Text writes the report with tables that fit the Terminal or a File.
func (r *Report) Text(w io.Writer, fit int) error {
	var b bytes.Buffer
	if err := pageTemplate.Execute(&b, r); err != nil {
		return err
	}
	_, err := io.WriteString(w, tables(b.String(), fit))
	return err
}

// A ruleTable is the rules of policies, without those beyond the length of lists.
type ruleTable struct {
	Rows []ruleRow
	More int
}

type ruleRow struct {
	Policy replay.PolicyResult
	Rule   replay.RuleResult
}

func rulesOf(most int, policies []replay.PolicyResult) (t ruleTable) {
	for _, p := range policies {
		for _, rule := range p.Rules {
			t.Rows = append(t.Rows, ruleRow{p, rule})
		}
	}
	t.More = max(0, len(t.Rows)-most)
	t.Rows = t.Rows[:len(t.Rows)-t.More]
	return t
}

// A spark is a plot in one line.
type spark struct {
	Busiest, Bars string
	Width         time.Duration // of a column
}

var bars = []rune(" ▁▂▃▄▅▆▇█")

// MoreClients is how many refused clients are not listed.
func (r *Report) MoreClients() int64 { return r.RefusedClients - int64(len(r.Refusals)) }

// Spark shows the refused requests over time; nil if there are none.
func (r *Report) Spark() *spark {
	if r.Refused == 0 {
		return nil
	}
	list, width := columns(r.Buckets, r.Width, 60)
	worst := slices.MaxFunc(list, func(a, b replay.Bucket) int { return cmp.Compare(a.Refused, b.Refused) })
	plot := make([]rune, len(list))
	for i, c := range list {
		plot[i] = bars[(c.Refused*int64(len(bars)-1)+worst.Refused-1)/worst.Refused]
	}
	busiest := fmt.Sprintf("The worst %s, from %s UTC on: %s of %s refused.", words.Duration(width), moment(worst.Start),
		words.Number(worst.Refused), words.Count(worst.Requests, "request"))
	return &spark{busiest, string(plot), width}
}
