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
	to   io.Writer
	zone *time.Location
	wide [2]int // instance, policy
}

func (l *watchLines) event(instance string, e *feed.Event) error {
	policy := e.Policy
	if e.Method != "" && !strings.HasPrefix(policy, e.Method+" ") {
		policy += " (" + e.Method + ")"
	}
	line := fmt.Sprintf("%s  %s  %-8s  %s", l.head(instance, e.At), l.column(1, policy), watchText(e.Outcome), details(e))
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

// column pads a text to the width of its column.
func (l *watchLines) column(i int, text string) string {
	const most = 40
	text = watchText(text)
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
