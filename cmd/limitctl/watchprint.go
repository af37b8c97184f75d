package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/routelimit/limit/cmd/limitctl/internal/words"
	"github.com/routelimit/limit/ops/feed"
)

// watchJSON prints lines of JSON.
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
	to    io.Writer
	color bool
	zone  *time.Location
	wide  [2]int // instance, policy
}

const (
	red    = "31"
	green  = "32"
	yellow = "33"
	faint  = "2"
)

func (l *watchLines) event(instance string, e *feed.Event) error {
	policy := e.Policy
	if e.Method != "" && !strings.HasPrefix(policy, e.Method+" ") {
		policy += " (" + e.Method + ")"
	}
	outcome, color := fmt.Sprintf("%-8s", watchText(e.Outcome)), yellow
	switch e.Outcome {
	case "admitted":
		color = green
	case "refused":
		color = red
	}
	line := l.head(instance, e.At) + "  " + l.column(1, policy) + "  " + l.paint(color, outcome)
	if details := details(e); details != "" {
		line += "  " + details
	}
	_, err := fmt.Fprintln(l.to, strings.TrimRight(line, " "))
	return err
}

func (l *watchLines) missed(instance string, at time.Time, admitted, refused int64) error {
	var parts []string
	for _, part := range []struct {
		n    int64
		what string
	}{{refused, "refused"}, {admitted, "admitted"}} {
		if part.n > 0 {
			parts = append(parts, words.Number(part.n)+" "+part.what)
		}
	}
	_, err := fmt.Fprintln(l.to, l.head(instance, at)+"  "+l.paint(faint, strings.Join(parts, " and ")+" not shown, of all policies"))
	return err
}

func (l *watchLines) head(instance string, at time.Time) string {
	return at.In(l.zone).Format("15:04:05.000") + " " + l.column(0, instance)
}

// column pads a text to the width of its column.
func (l *watchLines) column(i int, text string) string {
	const most = 40
	text = watchText(text)
	n := utf8.RuneCountInString(text)
	l.wide[i] = max(l.wide[i], min(n, most))
	return text + strings.Repeat(" ", max(0, l.wide[i]-n))
}

func (l *watchLines) paint(color, text string) string {
	if !l.color {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

// details says which rules refused or marked a request, and how it was decided if not by
// the store.
func details(e *feed.Event) string {
	var parts []string
	for i := range e.Rules {
		r := &e.Rules[i]
		text := watchText(r.Name)
		if r.Key != "" {
			text += " " + watchKey(r.Key)
		}
		text += fmt.Sprintf("  %s in %s", words.Number(r.Limit), lapse(r.WindowMS))
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
		parts = append(parts, "mode "+watchText(e.Mode))
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
	return ", again in " + lapse(ms)
}

// lapse writes a time, rounded up to seconds if it is longer than one.
func lapse(ms int64) string {
	if ms < 1000 {
		return strconv.FormatInt(ms, 10) + "ms"
	}
	seconds := (min(ms, int64(time.Duration(1<<63-1)/time.Millisecond)-1000) + 999) / 1000
	s := (time.Duration(seconds) * time.Second).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// watchText makes a text harmless for a terminal.
func watchText(s string) string {
	const most = 300
	if len(s) > most {
		s = s[:most] + "…"
	}
	return words.Printable(s)
}

// watchKey is watchText for a key, in quotes if it could be taken for other text.
func watchKey(key string) string {
	if plain(key, "/._-:@=+~") { // a comma may follow
		return watchText(key)
	}
	return watchText(strconv.QuoteToASCII(key))
}
