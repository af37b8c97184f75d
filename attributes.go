package limit

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/routelimit/limit/core"
)

// algorithms are the words for them in the text grammar, in their order.
var algorithms = func() (words []string) {
	for a := SlidingLog; a <= Concurrency; a++ {
		words = append(words, a.String())
	}
	return words
}()

// attributeWords are the words for the other attributes of a rule, in the order
// in which they are written.
var attributeWords = []string{"aligned", "zone", "cells", "burst", "missing", "empty", "wait", "on-error"}

// wantWord is what errors want behind a key.
var wantWord = `"and" or "or" and another key, one of ` + strings.Join(append(slices.Clone(algorithms), attributeWords...), ", ") +
	`, or ";" and another rule`

// attributes returns what stands behind the key of r in the text grammar.
func (r Rule) attributes() string {
	var b strings.Builder
	word := func(words ...string) {
		for _, w := range words {
			b.WriteString(" " + w)
		}
	}
	number := func(w string, n int64) {
		if n != 0 {
			word(w, strconv.FormatInt(n, 10))
		}
	}
	calendar := r.Calendar.Zone != nil
	if r.Algorithm != SlidingLog && (!calendar || r.Algorithm != FixedWindow) {
		word(r.Algorithm.String())
	}
	if r.Aligned {
		word("aligned")
	}
	if calendar {
		word("zone", r.Calendar.Zone.String())
	}
	number("cells", int64(r.Cells))
	number("burst", r.Burst)
	if r.Missing != 0 && r.Missing == r.quota().Burst {
		word("empty")
	} else {
		number("missing", r.Missing)
	}
	if r.MaxWait != 0 {
		word("wait", formatWindow(r.MaxWait))
	}
	if r.OnStoreError != Local {
		word("on-error", r.OnStoreError.String())
	}
	return b.String()
}

// noText returns why r cannot be read from its text, or "".
func (r Rule) noText() string {
	if r.Key.uses(byFunc) {
		return "a function has no text: write a resolver other than limit.By"
	}
	if r.Cost != nil {
		return "a function has no text: leave out the Cost"
	}
	if r.Settle != nil {
		return "a function has no text: leave out the Settle"
	}
	if zone := r.Calendar.Zone; zone != nil {
		if loaded, err := time.LoadLocation(zone.String()); err != nil || !sameZone(loaded, zone) {
			return "the zone " + strconv.Quote(zone.String()) + " has no text: write one that time.LoadLocation knows"
		}
	}
	return ""
}

// empty stands for as many missing units as a burst has, which may be read later.
const empty = -1

// attributes reads the attributes of r, of which at is where the window stands.
func (p *parser) attributes(r *Rule, at int) (err error) {
	seen := make(map[string]bool)
	for err == nil {
		word := p.next()
		kind := word // what may stand once
		switch {
		case slices.Contains(algorithms, word):
			kind = "algorithm"
		case word == "empty":
			kind = "missing"
		case !slices.Contains(attributeWords, word):
			kind = ""
		}
		if kind == "" {
			break
		}
		if seen[kind] {
			return p.errorf("each word once, and one algorithm")
		}
		seen[kind] = true
		p.at += len(word)
		err = p.attribute(r, word)
	}
	if err != nil {
		return err
	}
	if r.Missing == empty {
		r.Missing = max(1, r.quota().Burst) // of other algorithms wrong, and not lost
	}
	return p.calendar(r, at, seen["algorithm"])
}

// attribute reads what follows a word.
func (p *parser) attribute(r *Rule, word string) (err error) {
	switch word {
	case "aligned":
		r.Aligned = true
	case "zone":
		r.Calendar.Zone, err = p.zone()
	case "cells":
		var n int64
		n, err = p.number(60, "the number of cells, 2 to 60")
		r.Cells = int(n)
	case "burst":
		r.Burst, err = p.number(core.MaxLimit, "a number behind burst, such as 10")
	case "missing":
		r.Missing, err = p.number(core.MaxLimit, "a number behind missing, such as 10")
	case "empty":
		r.Missing = empty
	case "wait":
		p.skip(blanks)
		r.MaxWait, err = p.length("a wait", `behind "wait"`)
	case "on-error":
		r.OnStoreError, err = p.onError()
	default:
		r.Algorithm = Algorithm(slices.Index(algorithms, word))
	}
	return err
}

// number reads a number from 1 to most.
func (p *parser) number(most int64, want string) (int64, error) {
	word := p.next()
	n, err := parseCount(word)
	if err != nil || n < 1 || n > most {
		return 0, p.errorf("%s", want)
	}
	p.at += len(word)
	return n, nil
}

func (p *parser) zone() (*time.Location, error) {
	p.skip(blanks)
	name := p.word()
	zone, err := time.LoadLocation(name)
	if name == "" || err != nil {
		return nil, p.errorf("a time zone that this machine knows, such as UTC or Europe/Berlin")
	}
	p.at += len(name)
	return zone, nil
}

// calendar makes r a rule of a calendar if it has a zone: its window, which
// stands at a place before, is then the word for a unit.
func (p *parser) calendar(r *Rule, at int, algorithm bool) error {
	word := leading(p.text[at:], func(c rune) bool { return !strings.ContainsRune(delimiters, c) })
	unit := core.CalendarUnit(0)
	for u := Hour; u <= Month; u++ {
		if word == unitWord(u) {
			unit = u
		}
	}
	switch {
	case r.Calendar.Zone == nil && r.Window == 0:
		return p.errorf(`zone and the time zone of the %s, such as zone UTC, or a window of days such as 30d`, word)
	case r.Calendar.Zone == nil:
		return nil
	case unit == 0:
		p.at = at
		return p.errorf("hour, day, week or month, since the rule has a zone")
	}
	r.Calendar.Unit, r.Window = unit, 0
	if !algorithm {
		r.Algorithm = FixedWindow
	}
	return nil
}

var onErrorWords = []string{Local.String(), Allow.String(), Refuse.String()}

// onError reads what a rule wants when the store fails.
func (p *parser) onError() (OnError, error) {
	word := p.next()
	i := slices.Index(onErrorWords, word)
	if i < 0 {
		return 0, p.errorf("%s behind on-error", strings.Join(onErrorWords, ", "))
	}
	p.at += len(word)
	return OnError(i), nil
}
