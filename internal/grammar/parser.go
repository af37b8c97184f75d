package grammar

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/routelimit/limit/core"
)

// Parse reads rules. The error is a [*ParseError].
func Parse(text string) ([]Rule, error) {
	p := parser{lexer{text: text}}
	var rules []Rule
	for {
		p.skip(blanks + "\n")
		if len(rules) > 0 && p.at == len(text) {
			return rules, nil
		}
		if len(rules) == core.MaxCharges {
			return nil, p.errorf("at most %d rules", core.MaxCharges)
		}
		rule, err := p.rule()
		if err != nil {
			return nil, err
		}
		rules = append(rules, rule)
	}
}

// A parser reads a text once, from left to right. Each method reads one part of
// the grammar, and leaves the offset after it.
type parser struct{ lexer }

// rule reads a rule and the ";" or line break after it.
func (p *parser) rule() (r Rule, err error) {
	if name, _, ok := strings.Cut(p.peek(), ":"); ok {
		if !ValidName(name) {
			return r, p.errorf("a name of 1 to %d letters, digits, '.', '_' or '-' before the colon", MaxName)
		}
		r.Name = name
		p.at += len(name) + len(":")
	}
	if r.Limit, err = p.count(); err != nil {
		return r, err
	}
	window := p.at
	if r.Window, err = p.window(r.Limit); err != nil {
		return r, err
	}
	switch {
	case p.accept("global"):
		r.Key.Kind = Global
	case p.accept("per"):
		r.Key, err = p.wholeKey()
	default:
		err = p.unexpected(`"per" and a key such as ip or user, or "global"`)
	}
	if err == nil {
		err = p.attributes(&r, window)
	}
	if err != nil {
		return r, err
	}
	switch p.peek() {
	case "":
	case ";", "\n":
		p.at++
	default:
		return r, p.unexpected(wantWord)
	}
	return r, nil
}

// count reads a count and the slash after it.
func (p *parser) count() (int64, error) {
	word := p.peek()
	count, _, slash := strings.Cut(word, "/")
	digits := leading(word, isDigit)
	n, err := parseCount(count)
	switch {
	case digits == "":
		return 0, p.errorf(`a count and a window, such as "5/2s"`)
	case errors.Is(err, strconv.ErrRange):
		return 0, p.errorf("a smaller count")
	case err == nil && slash:
		p.at += len(count) + len("/")
		return n, nil
	case err == nil:
		digits = count
	}
	p.at += len(digits)
	if err == nil && strings.HasPrefix(p.peek(), "/") {
		after := p.lexer
		after.at += len("/")
		return 0, p.errorf(`the slash without spaces around it: write "%s/%s"`, digits, after.exampleWindow())
	}
	return 0, p.errorf(`"/" and a window right after the count, such as "%s/2s"`, digits)
}

// window reads a window. It is 0 if it is a word that needs a calendar. The
// limit is for an error.
func (p *parser) window(limit int64) (time.Duration, error) {
	if word := p.word(); word == UnitWord(core.Week) || word == UnitWord(core.Month) {
		p.at += len(word)
		return 0, nil
	}
	if p.word() == "" && leading(p.peek(), isDigit) != "" {
		return 0, p.errorf(`the window right after the slash, without spaces: write "%d/%s"`, limit, p.exampleWindow())
	}
	return p.length("a window", "right after the slash")
}

// exampleWindow returns the next word if it may be a window, and an example otherwise.
// It is for messages.
func (l lexer) exampleWindow() string {
	if word := l.peek(); leading(word, isDigit) != "" && len(word) < len("106751d23h47m16s") {
		return word
	}
	return "2s"
}
