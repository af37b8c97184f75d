package limit

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/routelimit/limit/core"
)

// Parse reads rules in the text grammar:
//
//	5/2s per ip; 1000/1m global; login: 20/1h per user or ip
//
//	rules  = rule *( ";" rule )         a line break is as good as ";"
//	rule   = [ name ":" ] count "/" window ( "global" | "per" key ) *word
//	count  = digits [ "k" | "M" ]
//	window = a Go duration that also knows d, or one of s m h d alone,
//	         which may be written second minute hour day
//	key    = "ip" | "user" | "header" name | "cookie" name | "query" name |
//	         "path" name | key "and" key | key "or" key | "(" key ")"
//	word   = algorithm | "aligned" | "zone" zone | "cells" digits |
//	         "burst" count | "missing" count | "empty" | "wait" duration |
//	         "on-error" ( "local" | "allow" | "refuse" )
//
// "and" is [Joined] and binds tighter than "or", which is [FirstOf].
//
// The words, in any order, are the attributes of a [Rule]: one of the words of
// [Algorithm], and what belongs to it. "empty" is a bucket that begins so. With
// a zone, which [time.LoadLocation] reads, the rule is a [FixedWindow] by the
// calendar, and the window is one of the words hour, day, week and month:
//
//	100/1m per ip token-bucket burst 10; 10000/month per user zone Europe/Berlin
//
// The error is a [*ParseError], or that of [RuleSet.Validate].
func Parse(text string) (RuleSet, error) {
	p := parser{text: text}
	var rules []Rule
	for {
		p.skip(" \t\r\n")
		if len(rules) > 0 && p.at == len(text) {
			break
		}
		if len(rules) == core.MaxCharges {
			return RuleSet{}, p.errorf("at most %d rules", core.MaxCharges)
		}
		rule, err := p.rule()
		if err != nil {
			return RuleSet{}, err
		}
		rules = append(rules, rule)
	}
	set := RuleSet{rules: rules}
	if err := set.Validate(); err != nil {
		return RuleSet{}, err
	}
	return set, nil
}

// MustParse is [Parse], but panics instead of returning an error. It is for
// rules that are written in the program.
func MustParse(text string) RuleSet {
	set, err := Parse(text)
	if err != nil {
		panic(err)
	}
	return set
}

// A parser reads a text once, from left to right. Its methods read one thing
// each and leave at behind it.
type parser struct {
	text string
	at   int
}

const (
	blanks     = " \t\r"
	delimiters = blanks + "\n;()"
)

func (p *parser) skip(bytes string) {
	p.at = len(p.text) - len(strings.TrimLeft(p.text[p.at:], bytes))
}

// next goes to the next token and returns it without reading it: a delimiter,
// a word, or "" at the end.
func (p *parser) next() string {
	p.skip(blanks)
	if word := p.word(); word != "" || p.at == len(p.text) {
		return word
	}
	return p.text[p.at : p.at+1]
}

// word returns what is left of the word that the parser is in.
func (p *parser) word() string {
	rest := p.text[p.at:]
	if i := strings.IndexAny(rest, delimiters); i >= 0 {
		return rest[:i]
	}
	return rest
}

// accept reads the next token if it is the given one.
func (p *parser) accept(token string) bool {
	if p.next() != token {
		return false
	}
	p.at += len(token)
	return true
}

// errorf returns the error that something else than the next token is wanted.
func (p *parser) errorf(want string, args ...any) error {
	found := p.next()
	return &ParseError{Text: p.text, Offset: p.at, Found: found, Want: fmt.Sprintf(want, args...)}
}

// rule reads a rule and what ends it.
func (p *parser) rule() (r Rule, err error) {
	if name, _, ok := strings.Cut(p.next(), ":"); ok {
		if !validName(name) {
			return r, p.errorf("a name of 1 to %d letters, digits, '.', '_' or '-' before the colon", maxName)
		}
		r.Name = name
		p.at += len(name) + len(":")
	}
	if r.Limit, err = p.count(); err != nil {
		return r, err
	}
	window := p.at
	if r.Window, err = p.window(); err != nil {
		return r, err
	}
	switch {
	case p.accept("global"):
		r.Key = Everyone
	case p.accept("per"):
		r.Key, err = p.key(0)
	default:
		err = p.errorf(`"per" and a key such as ip or user, or "global"`)
	}
	if err == nil {
		err = p.attributes(&r, window)
	}
	if err != nil {
		return r, err
	}
	switch p.next() {
	case "":
	case ";", "\n":
		p.at++
	default:
		return r, p.errorf("%s", wantWord)
	}
	return r, nil
}

// count reads a count and the slash behind it.
func (p *parser) count() (int64, error) {
	word := p.next()
	count, _, _ := strings.Cut(word, "/")
	digits := leading(word, isDigit)
	n, err := parseCount(count)
	switch {
	case digits == "":
		return 0, p.errorf(`a count and a window, such as "5/2s"`)
	case errors.Is(err, strconv.ErrRange):
		return 0, p.errorf("a smaller count")
	case err != nil || len(count) == len(word):
		if err != nil {
			count = digits
		}
		p.at += len(count)
		return 0, p.errorf(`"/" and a window right behind the count, such as "%s/2s"`, digits)
	}
	p.at += len(count) + len("/")
	return n, nil
}

// window reads a window. It is 0 if it is a word that needs a calendar.
func (p *parser) window() (time.Duration, error) {
	if word := p.word(); word == unitWord(Week) || word == unitWord(Month) {
		p.at += len(word)
		return 0, nil
	}
	return p.length("a window", "right behind the slash")
}

// key reads a key that stands in so many parentheses.
func (p *parser) key(depth int) (KeyResolver, error) {
	return p.list("or", FirstOf, func() (KeyResolver, error) {
		return p.list("and", Joined, func() (KeyResolver, error) { return p.operand(depth) })
	})
}

// list reads one part, or several with a word between them.
func (p *parser) list(
	word string, join func(...KeyResolver) KeyResolver, part func() (KeyResolver, error),
) (KeyResolver, error) {
	var parts []KeyResolver
	for {
		k, err := part()
		if err != nil {
			return k, err
		}
		parts = append(parts, k)
		if !p.accept(word) {
			break
		}
	}
	if len(parts) == 1 {
		return parts[0], nil
	}
	return join(parts...), nil
}

// operand reads a key without "and" and "or", or any key in parentheses.
func (p *parser) operand(depth int) (KeyResolver, error) {
	switch {
	case p.accept("ip"):
		return ByIP, nil
	case p.accept("user"):
		return ByUser, nil
	case p.accept("header"):
		return p.named("header", ByHeader)
	case p.accept("cookie"):
		return p.named("cookie", ByCookie)
	case p.accept("query"):
		return p.named("query", ByQuery)
	case p.accept("path"):
		return p.named("path", ByPathValue)
	case p.next() == "global":
		return KeyResolver{}, p.errorf(`a key such as ip or user, or "global" without "per"`)
	case p.next() != "(":
		return KeyResolver{}, p.errorf("a key: ip, user, header NAME, cookie NAME, query NAME, path NAME, " +
			"or several of them with and, or and parentheses")
	case depth == maxNesting:
		return KeyResolver{}, p.errorf("at most %d parentheses inside each other", maxNesting)
	}
	p.at++
	k, err := p.key(depth + 1)
	if err == nil && !p.accept(")") {
		err = p.errorf(`"and" or "or" and another key, or ")"`)
	}
	return k, err
}

// named reads the name of a header, cookie, ….
func (p *parser) named(kind string, by func(string) KeyResolver) (KeyResolver, error) {
	p.skip(blanks)
	name := p.word()
	if name == "" {
		return KeyResolver{}, p.errorf("the name of the %s", kind)
	}
	p.at += len(name)
	return by(name), nil
}
