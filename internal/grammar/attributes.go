package grammar

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/routelimit/limit/core"
)

// attributes are the words for the attributes of a rule besides its algorithm, in
// the order in which String writes them, and the fields of a quota that they set.
var attributes = []struct {
	word   string
	fields core.Fields
}{
	{"aligned", core.FieldAligned},
	{"zone", core.FieldCalendar},
	{"cells", core.FieldCells},
	{"burst", core.FieldBurst},
	{"missing", core.FieldMissing},
	{"empty", core.FieldMissing},
	{"wait", core.FieldMaxWait},
	{onError, 0},
	{refuse, 0},
	{shadow, 0},
	{enforced, 0},
	{replaces, 0},
	{hidden, 0},
	{plan, 0},
	{reserve, 0},
	{exempt, 0},
}

// onError is an attribute of a rule of any algorithm.
const onError = "on-error"

// fieldsOf returns the fields that a word sets, and whether it is an attribute.
func fieldsOf(word string) (fields core.Fields, ok bool) {
	for _, a := range attributes {
		if a.word == word {
			return a.fields, true
		}
	}
	return 0, false
}

// wantWord is what errors want after a key.
var wantWord = func() string {
	var words []string
	for _, a := range core.Algorithms() {
		words = append(words, a.String())
	}
	for _, a := range attributes {
		words = append(words, a.word)
	}
	return `"and" or "or" and another key, one of ` + strings.Join(words, ", ") +
		`, or ";" and another rule`
}()

// writeAttributes writes the text after the key of r.
func (r Rule) writeAttributes(b *strings.Builder) {
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
	if r.Algorithm != core.SlidingLog && (!calendar || r.Algorithm != core.FixedWindow) {
		word(r.Algorithm.String())
	}
	if r.Bar != 0 {
		word(FormatWindow(r.Bar))
	}
	if r.MaxBar != 0 {
		word(to, FormatWindow(r.MaxBar))
	}
	if r.Algorithm == core.Distinct {
		word(r.Values.String())
	}
	if r.Aligned {
		word("aligned")
	}
	if calendar {
		word("zone", r.Calendar.Zone.String())
	}
	number("cells", r.Cells)
	number("burst", r.Burst)
	number("missing", r.Missing)
	if r.Empty {
		word("empty")
	}
	if r.MaxWait != 0 {
		word("wait", FormatWindow(r.MaxWait))
	}
	if r.OnError != core.Local {
		word(onError, r.OnError.String())
	}
	word(r.Refusal.words()...)
	if r.Shadow {
		word(shadow)
	}
	number(enforced, r.Enforced)
	if r.Replaces != "" {
		word(replaces, r.Replaces)
	}
	if r.Hidden {
		word(hidden)
	}
	r.writeCallers(word)
}

// An attribute is a word of a rule, and its offset in the text.
type attribute struct {
	word string
	at   int
}

// attributes reads the words after the key of r. The window of r is at an earlier
// offset.
func (p *parser) attributes(r *Rule, window int) error {
	var read []attribute
	seen := make(map[string]bool)
	for {
		word := p.peek()
		kind := kindOf(word)
		if kind == "" {
			break
		}
		if seen[kind] && !repeatable(kind) {
			return p.errorf("each word once, and one algorithm")
		}
		seen[kind] = true
		read = append(read, attribute{word, p.at})
		p.at += len(word)
		if err := p.attribute(r, word); err != nil {
			return err
		}
	}
	if err := p.calendar(r, window, seen["algorithm"]); err != nil {
		return err
	}
	return p.check(r, read, seen["algorithm"])
}

// kindOf returns the kind of an attribute, or "" if the word is not one. A rule has
// one attribute of a kind.
func kindOf(word string) string {
	if _, ok := core.ParseAlgorithm(word); ok {
		return "algorithm"
	}
	if _, ok := fieldsOf(word); !ok {
		return ""
	}
	if word == "empty" {
		return "missing"
	}
	return word
}

// check returns an error at the first attribute that the algorithm of r does not
// take.
func (p *parser) check(r *Rule, read []attribute, named bool) error {
	for _, a := range read {
		fields, _ := fieldsOf(a.word)
		if r.Algorithm.Fields().Has(fields) {
			continue
		}
		var takers []string
		for _, b := range core.Algorithms() {
			if b.Fields().Has(fields) {
				takers = append(takers, b.String())
			}
		}
		is := r.Algorithm.String()
		switch {
		case r.Calendar.Zone != nil && !named:
			is += ", because it has a zone"
		case !named:
			is += ", the default"
		}
		p.at = a.at
		return p.errorf("an algorithm that takes it: %s (this rule is %s)", oneOf(takers), is)
	}
	return nil
}

// oneOf returns "a", "a or b" or "a, b or c".
func oneOf(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// attribute reads the value of an attribute.
func (p *parser) attribute(r *Rule, word string) (err error) {
	switch word {
	case "aligned":
		r.Aligned = true
	case "zone":
		r.Calendar.Zone, err = p.zone()
	case "cells":
		r.Cells, err = p.number(core.MaxCells, "the number of cells, 2 to 60")
	case "burst":
		r.Burst, err = p.number(core.MaxLimit, "a number after burst, such as 10")
	case "missing":
		r.Missing, err = p.number(core.MaxLimit, "a number after missing, such as 10")
	case "empty":
		r.Empty = true
	case "wait":
		p.skip(blanks)
		r.MaxWait, err = p.length("a wait", `after "wait"`)
	case onError:
		r.OnError, err = p.onError()
	case refuse:
		err = p.refusal(&r.Refusal)
	case shadow:
		r.Shadow = true
	case enforced:
		r.Enforced, err = p.number(99, "the percentage of keys, 1 to 99, after enforced")
	case replaces:
		r.Replaces, err = p.ruleName()
	case hidden:
		r.Hidden = true
	case plan:
		err = p.amount(&r.Plans, "plan", "limit")
	case reserve:
		err = p.amount(&r.Reserve, "class", "number of units")
	case exempt:
		err = p.exempt(r)
	default:
		r.Algorithm, _ = core.ParseAlgorithm(word)
		err = p.argument(r)
	}
	return err
}

// to separates the first bar of a ban from the longest.
const to = "to"

// argument reads what follows the name of the algorithm of r.
func (p *parser) argument(r *Rule) (err error) {
	switch r.Algorithm {
	case core.Ban:
		p.skip(blanks)
		if r.Bar, err = p.length("how long a key is barred,", `after "ban"`); err == nil && p.accept(to) {
			p.skip(blanks)
			r.MaxBar, err = p.length("the longest bar,", `after "to"`)
		}
	case core.Distinct:
		r.Values, err = p.wholeKey()
	}
	return err
}

// number reads a number from 1 to most.
func (p *parser) number(most int64, want string) (int64, error) {
	word := p.peek()
	n, err := parseCount(word)
	if err != nil || n < 1 || n > most {
		return 0, p.unexpected(want)
	}
	p.at += len(word)
	return n, nil
}

func (p *parser) onError() (core.OnError, error) {
	word := p.peek()
	var words []string
	for o := core.Local; o <= core.Refuse; o++ {
		if o.String() == word {
			p.at += len(word)
			return o, nil
		}
		words = append(words, o.String())
	}
	return 0, p.errorf("%s after on-error", strings.Join(words, ", "))
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

// calendar makes r a rule of a calendar if it has a zone. The window, which is at
// an earlier offset, is then the word for a unit.
func (p *parser) calendar(r *Rule, at int, algorithm bool) error {
	word := leading(p.text[at:], func(c rune) bool { return !strings.ContainsRune(delimiters, c) })
	unit := core.CalendarUnit(max(0, slices.Index(calendarWords[:], word)))
	switch {
	case r.Calendar.Zone == nil && r.Window == 0:
		return p.errorf(`zone and the time zone of the %s, such as zone UTC, or a window of days such as 30d`, word)
	case r.Calendar.Zone == nil:
		return nil
	case unit == 0:
		p.at = at
		return p.errorf("hour, day, week or month, because the rule has a zone")
	}
	r.Calendar.Unit, r.Window = unit, 0
	if !algorithm {
		r.Algorithm = core.FixedWindow
	}
	return nil
}
