package rules

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/grammar"
)

// Parse reads rules in the text grammar:
//
//	5/2s per ip; 1000/1m global; login: 20/1h per user or ip
//
//	rules  = part *( ";" part )         a line break means the same as ";"
//	part   = rule | "with" policy
//	rule   = [ name ":" ] count "/" window ( "global" | "per" key ) *word
//	count  = digits [ "k" | "M" ]
//	window = a Go duration that also knows d, or one of s m h d alone,
//	         which may be written second minute hour day
//	key    = "ip" | "user" | "header" name | "cookie" name | "query" name |
//	         "path" name | function | key "and" key | key "or" key | "(" key ")"
//	word   = algorithm | "ban" duration [ "to" duration ] | "distinct" key |
//	         "aligned" | "zone" zone | "cells" digits |
//	         "burst" count | "missing" count | "empty" | "wait" duration |
//	         "on-error" ( "local" | "allow" | "refuse" ) | "refuse" refusal |
//	         "cost" function | "settle" ( status *( "," status ) | "used" | function ) |
//	         "message" quoted |
//	         "shadow" | "enforced" digits | "replaces" name | "hidden" | "attempts" |
//	         "plan" name count | "reserve" name count | "exempt" exemption
//	refusal = "429" | "503" | "redirect" location [ "302" | "303" | "307" ] |
//	         "degrade" | "mark" | "wait" duration [ "waiters" count ]
//
// "with" adds the rules of another policy, by its name: see [Set.With].
//
//	5/2s per ip; with app
//
// "and" is [KeyResolver.And] and binds tighter than "or", which is [KeyResolver.Or].
//
// The words are the attributes of a [Rule], in any order: the name of an
// algorithm, and the options that it takes. "empty" sets Missing so that a
// bucket begins empty. "refuse" is the [Refusal]. It may appear twice, once for a wait:
// "refuse wait 2s refuse redirect /busy". A rule with a zone, which [time.LoadLocation]
// reads but for Local, is a [FixedWindow] with a [core.Calendar]. Its window is hour, day, week
// or month:
//
//	100/1m per ip token-bucket burst 10; 10000/month per user zone Europe/Berlin
//
// A [Ban] names the first bar and the longest one, and a [Distinct] the values that it counts:
//
//	5/1m per ip; 10/1h per ip ban 15m to 24h; 10/1h per ip distinct query user
//
// Plans, reserves and exemptions may appear several times: see Plans, Reserve and Exempt of [Rule].
//
//	100/1m per user plan pro 1000 plan enterprise 10k reserve critical 20 exempt ip 10.0.0.0/8
//
// A function is the name of one that the program gives: see [Functions]. Parse knows
// none. The statuses after settle are those of [OnStatus].
//
//	5/1m per ip settle 401,403 message "Too many failed logins. Try again later."
//
// The error joins one [*Error] for each thing wrong with the rules, with the place in
// the text and what to write there.
func Parse(text string) (Set, error) { return Functions{}.Parse(text) }

// Functions are the functions of a program that rules in text can name: "per tenant",
// "cost rows", "settle failed-logins". Their names are those that limit.By, [CostBy] and
// [SettleBy] were given. A limit.Limiter reads tags with those of limit.Options.
type Functions struct {
	Keys        []KeyResolver
	Costs       []Cost
	Settlements []Settlement
}

// Parse is the function [Parse] for texts that name functions.
func (f Functions) Parse(text string) (Set, error) {
	var set Set
	if err := cmp.Or(f.Validate(), set.read(text, &f)); err != nil {
		return Set{}, err
	}
	return set, nil
}

// Validate returns an error if two functions of a kind have one name, since a text would
// always mean the first.
func (f Functions) Validate() error {
	return errors.Join(distinct("Keys", f.Keys), distinct("Costs", f.Costs), distinct("Settlements", f.Settlements))
}

func distinct[F interface{ String() string }](field string, known []F) error {
	names := make(map[string]bool, len(known))
	for _, f := range known {
		if names[f.String()] {
			return fmt.Errorf("limit: Functions.%s has two functions %q: give each a name of its own", field, f)
		}
		names[f.String()] = true
	}
	return nil
}

// String returns r in the text grammar: "5/2s per ip". A Fallback is not part of it, and
// of functions only their names are.
func (r Rule) String() string {
	d := &draft{Rule: r, quota: r.declared(), values: r.Values(), shadow: r.shadow(), empty: r.empty()}
	if d.empty {
		d.quota.Missing = 0
	}
	h := grammar.Head{Name: r.Name, Limit: r.Limit, Window: r.Window, Unit: d.quota.Calendar.Unit, Key: r.Key.syntax()}
	list := []string{h.String()}
	for _, a := range table() {
		if a.write != nil {
			list = append(list, a.write(d)...)
		}
	}
	return strings.Join(list, " ")
}

// String returns s in the text grammar: "5/2s per ip; 1000/1m global". The
// name given by limit.Named is not part of it, and of other sets only their names are.
func (s Set) String() string {
	var texts []string
	for _, r := range s.rules[:s.own()] {
		texts = append(texts, r.String())
	}
	for _, other := range s.with {
		texts = append(texts, with+" "+other.name)
	}
	return strings.Join(texts, "; ")
}

var (
	_ encoding.TextMarshaler   = Set{}
	_ encoding.TextUnmarshaler = (*Set)(nil)
	_ encoding.TextUnmarshaler = (*Refusal)(nil)
)

// MarshalText implements [encoding.TextMarshaler], for JSON, YAML and flags. It
// returns an error if [Functions.Parse] could not read the text back: for an invalid set,
// for a Fallback, and for a time zone that is Local, or that time.LoadLocation does not know.
func (s Set) MarshalText() ([]byte, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	for i := range s.rules {
		if problem := s.rules[i].noText(); problem != "" {
			return nil, s.Errorf(i, "%s", problem)
		}
	}
	return []byte(s.String()), nil
}

// noText returns why Parse cannot read the text of r, or "".
func (r *Rule) noText() string {
	if r.OnRefusal.Fallback != nil {
		return "a handler has no text: leave out the Fallback"
	}
	if !grammar.HasText(r.OnRefusal.Redirect) {
		return `a redirect with ";", "(" or ")" has no text: percent-encode them as %3B, %28 and %29`
	}
	if zone := r.calendar().Zone; zone != nil {
		if loaded, err := loadZone(zone.String()); err != nil || !sameZone(loaded, zone) {
			return "the zone " + strconv.Quote(zone.String()) + " has no text: write one that every machine knows, such as UTC or Europe/Berlin"
		}
	}
	return ""
}

// UnmarshalText implements [encoding.TextUnmarshaler]. It replaces the rules of
// s, and keeps the name given by limit.Named. See [Parse].
func (s *Set) UnmarshalText(text []byte) error { return s.read(string(text), &Functions{}) }

// read reads the rules of a text, each for itself so that all mistakes are found.
func (s *Set) read(text string, f *Functions) error {
	set := Set{scope: s.scope, name: s.name, overridable: s.overridable, text: text}
	r := &grammar.Reader{Text: text}
	for _, k := range f.Keys {
		r.Functions = append(r.Functions, k.label)
	}
	var errs []error
	for first := true; first || !r.Blank(); first = false {
		r.Blank()
		if r.Peek() == with {
			if err := set.readWith(r); err != nil {
				errs = append(errs, set.misread(err))
				r.SkipRule()
			}
			continue
		}
		if len(set.at) == core.MaxCharges {
			errs = append(errs, set.misread(r.Errorf("at most %d rules", core.MaxCharges)))
			break
		}
		set.at = append(set.at, r.At)
		rule, err := readRule(r, f)
		set.rules = append(set.rules, rule)
		if err != nil {
			errs = append(errs, set.misread(err))
			r.SkipRule()
		}
	}
	if errs == nil {
		errs = append(errs, set.Validate())
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	*s = set
	return nil
}

// with begins the part of a text that names another policy.
const with = "with"

func (s *Set) readWith(r *grammar.Reader) error {
	at := r.At
	r.Next()
	name, err := r.Name("the name of a policy after with")
	if err != nil {
		return err
	}
	s.with, s.withAt = append(s.with, New(ScopeNamed, name, nil)), append(s.withAt, at)
	return r.EndOfRule(func(string) string { return `";" and another rule, since with names one policy` })
}

// misread returns an error of the grammar as one of the text of s.
func (s *Set) misread(err error) error {
	var e *grammar.Error
	if !errors.As(err, &e) {
		return err
	}
	return &Error{Policy: s.policy(), Text: s.text, Offset: e.Offset, Problem: e.Error(), misread: true}
}

// A draft is a rule whose text is being read or written.
type draft struct {
	Rule
	text      *grammar.Reader
	functions *Functions

	quota  core.Quota  // the fields of the algorithm
	values KeyResolver // of Distinct
	empty  bool        // whether a bucket begins so, in place of quota.Missing
	shadow Shadow

	seen  map[string]bool // the kinds of the words so far
	keyed bool            // whether the last of them is that of a key
}

// readRule reads a rule and the ";" or line break after it.
func readRule(r *grammar.Reader, f *Functions) (Rule, error) {
	h, err := r.Head()
	if err != nil {
		return Rule{}, err
	}
	d := &draft{text: r, functions: f}
	d.Rule = Rule{Name: h.Name, Limit: h.Limit, Window: h.Window, Key: d.keyOf(h.Key)}
	if err := d.attributes(&h); err != nil {
		return Rule{}, err
	}
	return d.Rule, r.EndOfRule(d.wants)
}

// attributes reads the words after the key, in any order.
func (d *draft) attributes(h *grammar.Head) error {
	type place struct {
		*attribute
		at int
	}
	var read []place
	d.seen, d.keyed = make(map[string]bool), h.Key.Kind != grammar.Global
	for {
		a := attributeOf(d.text.Peek())
		if a == nil {
			break
		}
		kind := cmp.Or(a.kind, a.word)
		if d.seen[kind] && !a.again {
			return d.text.Errorf("each word once, and one algorithm")
		}
		d.seen[kind] = true
		read = append(read, place{a, d.text.At})
		d.keyed = a.word == core.Distinct.String()
		d.text.Next()
		if err := a.read(d); err != nil {
			return err
		}
	}
	if err := d.calendar(h, d.seen[algorithm]); err != nil {
		return err
	}
	d.Algorithm = algorithmOf(&d.quota, d.values)
	for _, a := range read {
		end := d.text.At
		if d.text.At = a.at; a.beside != "" && !d.seen[a.beside] {
			return d.text.Errorf("%s beside %s: write %s %[2]s, or leave it out", a.beside, a.word, a.beside)
		}
		if !d.quota.Algorithm.Fields().Has(a.fields) {
			return d.misplaced(a.fields, d.seen[algorithm])
		}
		d.text.At = end
	}
	if bucket, ok := d.Algorithm.(TokenBucket); ok && d.empty {
		bucket.Missing = d.Rule.Quota().Burst
		d.Algorithm = bucket
	}
	return nil
}

// misplaced returns the error of a word that the algorithm does not take.
func (d *draft) misplaced(fields core.Fields, named bool) error {
	var takers []string
	for _, b := range core.Algorithms() {
		if b.Fields().Has(fields) {
			takers = append(takers, b.String())
		}
	}
	is := d.quota.Algorithm.String()
	switch {
	case d.quota.Calendar.Zone != nil && !named:
		is += ", because it has a zone"
	case !named:
		is += ", the default"
	}
	return d.text.Errorf("an algorithm that takes it: %s (this rule is %s)", grammar.OneOf(takers), is)
}

// calendar makes a rule with a zone one of a calendar. Its window is then the word for a unit.
func (d *draft) calendar(h *grammar.Head, named bool) error {
	zone := d.quota.Calendar.Zone
	switch {
	case zone == nil && h.Window == 0:
		return d.text.Errorf(`zone and the time zone of the %s, such as zone UTC, or a window of days such as 30d`, grammar.UnitWord(h.Unit))
	case zone == nil:
		return nil
	case h.Unit == 0:
		d.text.At = h.At
		return d.text.Errorf("hour, day, week or month, because the rule has a zone")
	}
	d.quota.Calendar.Unit, d.Window = h.Unit, 0
	if !named {
		d.quota.Algorithm = core.FixedWindow
	}
	return nil
}

// attributeOf returns the attribute of a word, or nil.
func attributeOf(word string) *attribute {
	for i := range table() {
		if a := &table()[i]; a.word == word && word != "" {
			return a
		}
	}
	return nil
}

// wants returns what an error wants instead of a word after a rule.
func (d *draft) wants(found string) string {
	if found == with {
		return `";" before with, since it stands in place of a rule`
	}
	var words []string
	for _, a := range table() {
		if a.word != "" && d.may(&a) {
			words = append(words, a.word)
		}
	}
	want := "one of " + strings.Join(words, ", ") + `, or ";" and another rule`
	if d.keyed {
		want = `"and" or "or" and another key, ` + want
	}
	if word := grammar.Nearest(found, words); word != "" { // first, before the long list
		want = word + ", or else " + want
	}
	return want
}

// may reports whether an attribute may follow the words so far.
func (d *draft) may(a *attribute) bool {
	named := d.seen[algorithm] || d.quota.Calendar.Zone != nil
	switch {
	case a.kind == algorithm:
		return !named
	case named && !d.quota.Algorithm.Fields().Has(a.fields):
		return false
	}
	return a.again || !d.seen[cmp.Or(a.kind, a.word)]
}

func readZone(d *draft) error {
	name, err := d.text.Word("a time zone that every machine knows, such as UTC or Europe/Berlin")
	if err != nil {
		return err
	}
	zone, unknown := loadZone(name)
	if unknown != nil {
		d.text.At -= len(name)
		return d.text.Errorf("a time zone that every machine knows, such as UTC or Europe/Berlin")
	}
	d.quota.Calendar.Zone = zone
	return nil
}

// loadZone is [time.LoadLocation] without the zone of the machine, which a file localtime has too. It
// differs between machines, so processes in two zones would each admit the limit. time.Local
// itself may have the name of a zone, from TZ or an assignment.
func loadZone(name string) (*time.Location, error) {
	if name == "Local" || name == "localtime" {
		return nil, errors.New("the zone of a machine")
	}
	return time.LoadLocation(name)
}

// amount reads a name and a number into m.
func (d *draft) amount(m *map[string]int64, of, number string) error {
	name := d.text.Peek()
	_, twice := (*m)[name]
	switch {
	case !grammar.ValidName(name):
		return d.text.Errorf("the name of a %s: 1 to %d letters, digits, '.', '_' or '-'", of, grammar.MaxName)
	case twice:
		return d.text.Errorf("each %s once", of)
	case len(*m) == grammar.MaxCallers:
		return d.text.Errorf("at most %d of %s", grammar.MaxCallers, of)
	}
	d.text.Next()
	n, err := d.text.Number(core.MaxLimit, "the "+number+" after the name of the "+of+", such as 100")
	if err != nil {
		return err
	}
	if *m == nil {
		*m = make(map[string]int64)
	}
	(*m)[name] = n
	return nil
}

// amounts returns the words of m.
func amounts(word string, m map[string]int64) (list []string) {
	for _, name := range slices.Sorted(maps.Keys(m)) {
		list = append(list, word, name, strconv.FormatInt(m[name], 10))
	}
	return list
}

func readExempt(d *draft) error {
	kind := d.text.Peek()
	switch {
	case !slices.Contains(grammar.ExemptKinds, kind):
		return d.text.Errorf("%s after exempt", grammar.OneOf(grammar.ExemptKinds))
	case len(d.Exempt) == grammar.MaxCallers:
		return d.text.Errorf("at most %d exemptions: put more into a list of package access", grammar.MaxCallers)
	}
	d.text.Next()
	value, err := d.text.Word(map[string]string{"ip": "an address or a prefix such as 10.0.0.0/8",
		"user": "the name of a user", "plan": "the name of a plan", "class": "the name of a class"}[kind] + " after exempt " + kind)
	d.Exempt = append(d.Exempt, kind+" "+value)
	return err
}

// syntax returns k as the grammar writes it.
func (k KeyResolver) syntax() grammar.Key {
	s := grammar.Key{Kind: k.kind, Name: k.name}
	for _, part := range k.parts {
		s.Parts = append(s.Parts, part.syntax())
	}
	return s
}

// keyOf returns the resolver that s names.
func (d *draft) keyOf(s grammar.Key) KeyResolver {
	if s.Kind == grammar.Func {
		i := slices.IndexFunc(d.functions.Keys, func(k KeyResolver) bool { return k.label == s.Name })
		return d.functions.Keys[i]
	}
	k := NewKey(s.Kind, s.Name)
	for _, part := range s.Parts {
		k.parts = append(k.parts, d.keyOf(part))
	}
	return labeled(k)
}

// named reads the name of one of some functions.
func named[F interface{ String() string }](d *draft, known []F, want string) (f F, err error) {
	var names []string
	for _, f := range known {
		if f.String() == d.text.Peek() {
			d.text.Next()
			return f, nil
		}
		names = append(names, f.String())
	}
	if names != nil {
		want = "one of " + strings.Join(names, ", ")
	}
	return f, d.text.Errorf("%s", want)
}

func readSettle(d *draft) (err error) {
	if word := d.text.Peek(); word == "" || word[0] < '0' || word[0] > '9' {
		known := d.functions.Settlements
		if word == AsUsed.name {
			known = append(slices.Clip(known), AsUsed)
		}
		d.Settle, err = named(d, known, "statuses such as 401,403, used, or a function of rules.Functions.Settlements")
		return err
	}
	var statuses []int
	for _, text := range strings.Split(d.text.Peek(), ",") {
		status, err := strconv.Atoi(text)
		if err != nil || status < minStatus || status > maxStatus {
			return d.text.Errorf("statuses from %d to %d, such as 401,403", minStatus, maxStatus)
		}
		statuses = append(statuses, status)
	}
	d.text.Next()
	d.Settle = OnStatus(statuses...)
	return nil
}
