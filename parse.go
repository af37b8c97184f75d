package limit

import (
	"encoding"
	"fmt"
	"strconv"
	"time"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/grammar"
)

// Parse reads rules in the text grammar:
//
//	5/2s per ip; 1000/1m global; login: 20/1h per user or ip
//
//	rules  = rule *( ";" rule )         a line break means the same as ";"
//	rule   = [ name ":" ] count "/" window ( "global" | "per" key ) *word
//	count  = digits [ "k" | "M" ]
//	window = a Go duration that also knows d, or one of s m h d alone,
//	         which may be written second minute hour day
//	key    = "ip" | "user" | "header" name | "cookie" name | "query" name |
//	         "path" name | key "and" key | key "or" key | "(" key ")"
//	word   = algorithm | "ban" duration [ "to" duration ] | "distinct" key |
//	         "aligned" | "zone" zone | "cells" digits |
//	         "burst" count | "missing" count | "empty" | "wait" duration |
//	         "on-error" ( "local" | "allow" | "refuse" ) | "refuse" refusal |
//	         "shadow" | "enforced" digits | "replaces" name | "hidden" |
//	         "plan" name count | "reserve" name count | "exempt" exemption
//	refusal = "429" | "503" | "redirect" location [ "302" | "303" | "307" ] |
//	         "degrade" | "mark" | "wait" duration [ "waiters" count ]
//
// "and" is [Joined] and binds tighter than "or", which is [FirstOf].
//
// The words are the attributes of a [Rule], in any order: the name of an
// algorithm, and the options that it takes. "empty" sets Missing so that a
// bucket begins empty. "refuse" is the [Refusal]. It may appear twice, once for a wait:
// "refuse wait 2s refuse redirect /busy". A rule with a zone, which [time.LoadLocation]
// reads, is a [FixedWindow] with a [Calendar]. Its window is hour, day, week or month:
//
//	100/1m per ip token-bucket burst 10; 10000/month per user zone Europe/Berlin
//
// A [Ban] names the first bar and the longest one, and a [Distinct] the values that it
// counts:
//
//	5/1m per ip; 10/1h per ip ban 15m to 24h; 10/1h per ip distinct query user
//
// Plans, reserves and exemptions may appear several times: see Plans, Reserve and Exempt
// of [Rule].
//
//	100/1m per user plan pro 1000 plan enterprise 10k reserve critical 20 exempt ip 10.0.0.0/8
//
// The error shows the place in the text and what to write there, or joins one
// [*RuleError] for each thing wrong with the rules.
func Parse(text string) (RuleSet, error) {
	var set RuleSet
	if err := set.UnmarshalText([]byte(text)); err != nil {
		return RuleSet{}, err
	}
	return set, nil
}

// MustParse is [Parse], but panics instead of returning an error. Use it for
// rules that are written in the program.
func MustParse(text string) RuleSet {
	set, err := Parse(text)
	if err != nil {
		panic(err)
	}
	return set
}

// String returns r in the text grammar: "5/2s per ip". Functions (Cost, Settle)
// and a Fallback are not part of it.
func (r Rule) String() string { return r.syntax().String() }

// String returns s in the text grammar: "5/2s per ip; 1000/1m global". The
// name given by [Named] is not part of it.
func (s RuleSet) String() string {
	rules := make([]grammar.Rule, len(s.rules))
	for i, r := range s.rules {
		rules[i] = r.syntax()
	}
	return grammar.Format(rules)
}

var (
	_ encoding.TextMarshaler   = RuleSet{}
	_ encoding.TextUnmarshaler = (*RuleSet)(nil)
)

// MarshalText implements [encoding.TextMarshaler], for JSON, YAML and flags. It
// returns an error if [Parse] could not read the text back: for an invalid set,
// for functions and a Fallback, and for a time zone that time.LoadLocation does not know.
func (s RuleSet) MarshalText() ([]byte, error) {
	if err := s.validate(); err != nil {
		return nil, err
	}
	for _, r := range s.rules {
		if problem := r.noText(); problem != "" {
			return nil, &RuleError{Rule: r.String(), Problem: problem}
		}
	}
	return []byte(s.String()), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler]. It replaces the rules of
// s, and keeps the name given by [Named]. See [Parse].
func (s *RuleSet) UnmarshalText(text []byte) error {
	parsed, err := grammar.Parse(string(text))
	if err != nil {
		return err
	}
	set := *s
	set.rules = make([]Rule, len(parsed))
	for i, rule := range parsed {
		set.rules[i] = ruleOf(rule)
		if !rule.Shadow && rule.Enforced != 0 {
			return &RuleError{Rule: set.rules[i].String(), Problem: fmt.Sprintf("enforced %d: it needs a Shadow: write shadow enforced %[1]d, or leave it out for all keys", rule.Enforced)}
		}
		if !rule.Shadow && rule.Replaces != "" {
			return &RuleError{Rule: set.rules[i].String(), Problem: fmt.Sprintf("replaces %q: it needs a Shadow: remove the rule %[1]q, or write shadow", rule.Replaces)}
		}
	}
	if err := set.validate(); err != nil {
		return err
	}
	*s = set
	return nil
}

// noText returns why Parse cannot read the text of r, or "".
func (r Rule) noText() string {
	if r.Key.uses(byFunc) || r.values().uses(byFunc) {
		return "a function has no text: write a resolver other than limit.By"
	}
	if r.Cost != (Cost{}) {
		return "a function has no text: leave out the Cost"
	}
	if r.Settle != (Settlement{}) {
		return "a function has no text: leave out the Settle"
	}
	if problem := r.OnRefusal.noText(); problem != "" {
		return problem
	}
	if zone := r.calendar().Zone; zone != nil {
		if loaded, err := time.LoadLocation(zone.String()); err != nil || !sameZone(loaded, zone) {
			return "the zone " + strconv.Quote(zone.String()) + " has no text: write one that time.LoadLocation knows"
		}
	}
	return ""
}

// syntax returns r as the grammar writes it.
func (r Rule) syntax() grammar.Rule {
	q, micros := r.declared(), time.Microsecond
	s := grammar.Rule{Name: r.Name, Limit: r.Limit, Window: r.Window, Key: r.Key.syntax(),
		Algorithm: q.Algorithm, Aligned: q.Aligned, Calendar: q.Calendar, Cells: q.Cells,
		Burst: q.Burst, Missing: q.Missing, MaxWait: time.Duration(q.MaxWait) * micros,
		Bar: time.Duration(q.Bar) * micros, MaxBar: time.Duration(q.MaxBar) * micros, Values: r.values().syntax(),
		OnError: r.OnStoreError, Refusal: r.OnRefusal.syntax(),
		Shadow: r.Shadow != nil, Enforced: int64(r.shadow().Enforced), Replaces: r.shadow().Replaces, Hidden: r.Hidden,
		Plans: r.Plans, Reserve: r.Reserve, Exempt: r.Exempt}
	if q.Missing != 0 && q.Missing == r.quota().Burst {
		s.Missing, s.Empty = 0, true
	}
	return s
}

// ruleOf returns the rule that s declares.
func ruleOf(s grammar.Rule) Rule {
	q := core.Quota{Algorithm: s.Algorithm, Aligned: s.Aligned, Calendar: s.Calendar, Cells: s.Cells, Burst: s.Burst, Missing: s.Missing,
		MaxWait: s.MaxWait.Microseconds(), Bar: s.Bar.Microseconds(), MaxBar: s.MaxBar.Microseconds()}
	r := Rule{Name: s.Name, Limit: s.Limit, Window: s.Window, Key: keyOf(s.Key),
		Algorithm: algorithmOf(&q, keyOf(s.Values)), OnStoreError: s.OnError, OnRefusal: refusalOf(s.Refusal), Hidden: s.Hidden,
		Plans: s.Plans, Reserve: s.Reserve, Exempt: s.Exempt}
	if s.Shadow {
		r.Shadow = &Shadow{Enforced: int(s.Enforced), Replaces: s.Replaces}
	}
	if bucket, ok := r.Algorithm.(TokenBucket); ok && s.Empty {
		bucket.Missing = r.quota().Burst
		r.Algorithm = bucket
	}
	return r
}

// keyKinds are the kinds of the grammar for those of resolvers. Functions have
// none.
var keyKinds = [...]grammar.Kind{everyone: grammar.Global, byIP: grammar.IP, byUser: grammar.User,
	byHeader: grammar.Header, byCookie: grammar.Cookie, byQuery: grammar.Query, byPath: grammar.Path,
	byFunc: 0, firstOf: grammar.Or, joined: grammar.And}

// syntax returns k as the grammar writes it.
func (k KeyResolver) syntax() grammar.Key {
	s := grammar.Key{Kind: keyKinds[k.kind], Name: k.name}
	for _, part := range k.parts {
		s.Parts = append(s.Parts, part.syntax())
	}
	return s
}

// keyOf returns the resolver that s names.
func keyOf(s grammar.Key) KeyResolver {
	parts := make([]KeyResolver, len(s.Parts))
	for i, part := range s.Parts {
		parts[i] = keyOf(part)
	}
	switch s.Kind {
	case grammar.Global:
		return Everyone
	case grammar.IP:
		return ByIP
	case grammar.User:
		return ByUser
	case grammar.Header:
		return ByHeader(s.Name)
	case grammar.Cookie:
		return ByCookie(s.Name)
	case grammar.Query:
		return ByQuery(s.Name)
	case grammar.Path:
		return ByPathValue(s.Name)
	case grammar.And:
		return Joined(parts...)
	case grammar.Or:
		return FirstOf(parts...)
	}
	return KeyResolver{}
}
