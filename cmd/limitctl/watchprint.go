package main

import (
	"fmt"
	"io"
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

func (j *watchJSON) tick(time.Time) error { return nil }

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

func (l *watchLines) tick(time.Time) error { return nil }

func (l *watchLines) head(instance string, at time.Time) string {
	return at.In(l.zone).Format("15:04:05.000") + " " + l.column(0, instance)
}

// column pads a text to the width of its column.
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
			text += " " + shortened(r.Key)
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
