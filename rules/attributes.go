package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/grammar"
)

// An attribute is a word of a rule in text, or several with one word before them: how it
// is read, written, compared and checked. Text, String, equal, validation, Complete and
// the documentation follow from the table.
type attribute struct {
	word   string
	doc    string      // one line
	values []string    // the words that may follow, if there are few
	kind   string      // a rule has one attribute of a kind; "" means the word
	again  bool        // whether it may stand several times
	fields core.Fields // of the quota: the algorithm must take them
	beside string      // another word that the rule must have

	read  func(*draft) error                     // what follows the word
	write func(*draft) []string                  // the words; nil if the rule has none
	check func(*Rule, *problems)                 // nil if nothing can be wrong
	same  func(a, b *Rule) (same bool, n string) // for what is not in the text; n names the difference
}

// table returns the attributes in the order of the text. Those without a word come
// before the others there, and are checked only.
func table() []attribute {
	tableOnce.Do(func() {
		rows = slices.Concat(heads(), algorithmWords(), algorithmOptions(), functionWords(), refusalWords(), watchWords(), callerWords())
	})
	return rows
}

// The table refers to functions that refer to it, so it is no initialized variable.
var (
	tableOnce sync.Once
	rows      []attribute
)

func heads() []attribute {
	return []attribute{
		{check: checkName},
		{check: checkQuota},
		{check: checkWindow},
		{check: func(r *Rule, p *problems) { p.add(r.Key.problems(0)...) },
			same: sameFunction("key", "limit.By", KeyResolver.equal, func(r *Rule) KeyResolver { return r.Key })},
	}
}

const algorithm = "algorithm"

// algorithmWords are the algorithms, and what follows their names.
func algorithmWords() []attribute {
	return []attribute{
		algorithmWord(core.SlidingLog, "at most the limit in any window, exactly; the default"),
		algorithmWord(core.FixedWindow, "at most the limit in each of its windows"),
		algorithmWord(core.SlidingCells, "at most the limit in any window, for large limits"),
		algorithmWord(core.SlidingCounter, "about the limit in a window, in little memory"),
		algorithmWord(core.TokenBucket, "a burst at once, then the rate"),
		algorithmWord(core.LeakyBucket, "a burst at once, then the rate: another name for a token bucket"),
		algorithmWord(core.Queue, "the rate, and requests wait for their slots"),
		algorithmWord(core.Concurrency, "so many requests at once"),
		banWord(),
		distinctWord(),
	}
}

func banWord() attribute {
	return attribute{word: core.Ban.String(), kind: algorithm, doc: "bars a key for a time after so many refusals",
		read: func(d *draft) (err error) {
			d.quota.Algorithm = core.Ban
			if d.quota.Bar, err = d.text.Micros("how long a key is barred,", `after "ban"`); err == nil && d.text.Accept("to") {
				d.quota.MaxBar, err = d.text.Micros("the longest bar,", `after "to"`)
			}
			return err
		},
		write: func(d *draft) []string {
			q := &d.quota
			return slices.Concat(words(q.Bars(), "ban"), words(q.Bar != 0, length(q.Bar)), words(q.MaxBar != 0, "to", length(q.MaxBar)))
		},
		check: func(r *Rule, p *problems) {
			if a, ok := r.Algorithm.(Ban); ok && (a.Bar%time.Microsecond != 0 || a.MaxBar%time.Microsecond != 0) {
				p.addf("bars of %v to %v: write whole numbers of microseconds", a.Bar, a.MaxBar)
			}
		},
	}
}

func distinctWord() attribute {
	return attribute{word: core.Distinct.String(), kind: algorithm, doc: "so many different values of another key",
		values: grammar.Keys,
		read: func(d *draft) error {
			k, err := d.text.Key()
			d.quota.Algorithm, d.values = core.Distinct, d.keyOf(k)
			return err
		},
		write: func(d *draft) []string {
			return words(d.quota.Algorithm == core.Distinct, "distinct", d.values.String())
		},
		check: func(r *Rule, p *problems) {
			switch values := r.Values(); {
			case !r.shows():
			case values.kind == 0 || values.kind == grammar.Global:
				p.addf("no values: write what is counted, such as Values: limit.ByHeader(\"X-Account\")")
			default:
				p.add(values.problems(0)...)
			}
		},
		same: sameFunction("values", "limit.By", KeyResolver.equal, (*Rule).Values),
	}
}

// algorithmOptions are the fields of algorithms.
func algorithmOptions() []attribute {
	empty := toggle("empty", "a new bucket begins empty", core.FieldMissing, func(d *draft) *bool { return &d.empty })
	empty.kind = "missing"
	return []attribute{
		toggle("aligned", "windows start on the clock, in UTC", core.FieldAligned, func(d *draft) *bool { return &d.quota.Aligned }),
		{word: "zone", doc: "windows are the hours, days, weeks or months of a time zone", fields: core.FieldCalendar,
			values: []string{"UTC"}, read: readZone,
			write: func(d *draft) []string {
				zone := d.quota.Calendar.Zone
				return words(zone != nil, "zone", zone.String())
			},
			same: func(a, b *Rule) (bool, string) { return sameZone(a.calendar().Zone, b.calendar().Zone), "" }},
		number("cells", "into how many cells the window is divided", core.FieldCells, core.MaxCells,
			"the number of cells, 2 to 60", func(d *draft) *int64 { return &d.quota.Cells }),
		number("burst", "how many units may come, or wait, at once", core.FieldBurst, core.MaxLimit,
			"a number after burst, such as 10", func(d *draft) *int64 { return &d.quota.Burst }),
		number("missing", "how many units a new bucket lacks", core.FieldMissing, core.MaxLimit,
			"a number after missing, such as 10", func(d *draft) *int64 { return &d.quota.Missing }),
		empty,
		{word: "wait", doc: "the longest wait in a queue", fields: core.FieldMaxWait,
			read: func(d *draft) (err error) {
				d.quota.MaxWait, err = d.text.Micros("a wait", `after "wait"`)
				return err
			},
			write: func(d *draft) []string { return words(d.quota.MaxWait != 0, "wait", length(d.quota.MaxWait)) },
			check: func(r *Rule, p *problems) {
				if a, ok := r.Algorithm.(Queue); ok && a.MaxWait%time.Microsecond != 0 {
					p.addf("wait %v: write a whole number of microseconds", a.MaxWait)
				}
			}},
	}
}

// functionWords name functions of the program.
func functionWords() []attribute {
	return []attribute{
		{word: "cost", doc: "the function that says how many units a request costs",
			read: func(d *draft) (err error) {
				d.Cost, err = named(d, d.functions.Costs, "a function of rules.Functions.Costs")
				return err
			},
			write: func(d *draft) []string { return words(d.Cost.fn != nil, "cost", d.Cost.name) },
			check: func(r *Rule, p *problems) {
				p.function("CostBy", r.Cost.name, r.Cost.fn != nil, r.Cost.fn != nil && *r.Cost.fn == nil)
			},
			same: sameFunction("Cost", "rules.CostBy", equal, func(r *Rule) Cost { return r.Cost })},
		{word: "settle", doc: "the statuses of responses that count, such as 401,403; used, if the handler says what a request uses; or the function that says what it cost",
			read:  readSettle,
			write: func(d *draft) []string { return words(d.Settle != (Settlement{}), "settle", d.Settle.text()) },
			check: func(r *Rule, p *problems) {
				p.function("SettleBy", r.Settle.name, r.Settle.fn != nil, r.Settle.fn != nil && *r.Settle.fn == nil)
				if r.leases() && r.Settle != (Settlement{}) {
					p.addf("a Settle: a lease is released in full when the request is done: leave it out")
				}
			},
			same: sameFunction("Settle", "rules.SettleBy", equal, func(r *Rule) Settlement { return r.Settle })},
	}
}

func refusalWords() []attribute {
	return []attribute{
		number("debt", "how many units above the limit a settlement may take", 0, core.MaxLimit,
			"a number after debt, such as 20k", func(d *draft) *int64 { return &d.Debt }).checked(checkDebt),
		{word: "on-error", doc: "what the rule does while the store is unavailable", values: onErrors,
			read: func(d *draft) error {
				i := slices.Index(onErrors, d.text.Peek())
				if i < 0 {
					return d.text.Errorf("local, allow, refuse after on-error")
				}
				d.text.Next()
				d.OnStoreError = core.OnError(i)
				return nil
			},
			write: func(d *draft) []string {
				return words(d.OnStoreError != core.Local, "on-error", d.OnStoreError.String())
			},
			check: func(r *Rule, p *problems) {
				if r.OnStoreError > core.Refuse {
					p.addf("%v: write Local, Allow or Refuse", r.OnStoreError)
				}
			}},
		{word: refuse, doc: "what happens to a request that the rule refuses", again: true,
			values: refusals,
			read:   func(d *draft) error { return d.OnRefusal.read(d.text) },
			write:  func(d *draft) []string { return d.OnRefusal.words() },
			check:  checkRefusal,
			same:   sameFallback},
		{word: "message", doc: "the text that a refused client reads, in quotes",
			read: func(d *draft) (err error) {
				d.Message, err = d.text.Quoted(`a text in quotes after message, such as "Try again later."`)
				return err
			},
			write: func(d *draft) []string { return words(d.Message != "", "message", grammar.Quote(d.Message)) },
			check: func(r *Rule, p *problems) {
				unprintable := func(c rune) bool { return c == unicode.ReplacementChar || !unicode.IsPrint(c) }
				if len(r.Message) > maxMessage || strings.ContainsFunc(r.Message, unprintable) {
					p.addf("message %q: write at most %d bytes of printable characters", r.Message, maxMessage)
				}
			}},
	}
}

var onErrors = []string{core.Local.String(), core.Allow.String(), core.Refuse.String()}

func watchWords() []attribute {
	return []attribute{
		{word: "shadow", doc: "the rule counts and reports, and refuses nothing",
			read:  func(d *draft) error { d.Shadow = &d.shadow; return nil },
			write: func(d *draft) []string { return words(d.Shadow != nil, "shadow") },
			check: func(r *Rule, p *problems) {
				if (r.leases() || r.noQuota()) && (r.Shadow != nil || r.OnRefusal.Mark) {
					p.addf("%v cannot watch: leave out shadow and mark, or write another algorithm", r.algorithm())
				}
				if r.Shadow != nil && r.OnRefusal.Mark {
					p.addf("shadow and mark: write one of them")
				}
			}},
		{word: "enforced", doc: "the percentage of keys for which a shadow is enforced", beside: "shadow",
			read: func(d *draft) error {
				n, err := d.text.Number(99, "the percentage of keys, 1 to 99, after enforced")
				d.shadow.Enforced = int(n)
				return err
			},
			write: func(d *draft) []string {
				return words(d.shadow.Enforced != 0, "enforced", strconv.Itoa(d.shadow.Enforced))
			},
			check: func(r *Rule, p *problems) {
				if n := r.shadow().Enforced; n < 0 || n > 99 {
					p.addf("enforced %d: write the percentage of keys, 1 to 99; leave out shadow and enforced for all keys", n)
				}
			}},
		{word: "replaces", doc: "the rule of the same set to compare a shadow with", beside: "shadow",
			read: func(d *draft) (err error) {
				d.shadow.Replaces, err = d.text.Name("the name of a rule after replaces")
				return err
			},
			write: func(d *draft) []string { return words(d.shadow.Replaces != "", "replaces", d.shadow.Replaces) },
			check: func(r *Rule, p *problems) {
				enforced := func(old Rule) bool { return old.name() == r.shadow().Replaces && old.Shadow == nil }
				if name := r.shadow().Replaces; name != "" && !slices.ContainsFunc(p.set.rules, enforced) {
					p.addf("replaces %q: write the name of a rule of the same set that is not a shadow", name)
				}
			}},
		toggle("hidden", "the rule appears in no header", 0, func(d *draft) *bool { return &d.Hidden }),
		toggle("attempts", "a request stays counted if a rule set behind this one refuses it", 0,
			func(d *draft) *bool { return &d.Attempts }).checked(checkAttempts),
	}
}

func callerWords() []attribute {
	return []attribute{
		{word: "plan", doc: "another limit for callers on a plan", again: true,
			read:  func(d *draft) error { return d.amount(&d.Plans, "plan", "limit") },
			write: func(d *draft) []string { return amounts("plan", d.Plans) },
			check: checkPlans},
		{word: "reserve", doc: "units that are kept for a class of callers and those above it", again: true,
			read:  func(d *draft) error { return d.amount(&d.Reserve, "class", "number of units") },
			write: func(d *draft) []string { return amounts("reserve", d.Reserve) },
			check: checkReserve},
		{word: "exempt", doc: "callers that the rule neither charges nor refuses", again: true, values: grammar.ExemptKinds,
			read: readExempt,
			write: func(d *draft) (list []string) {
				for _, entry := range d.Exempt {
					list = append(list, "exempt", entry)
				}
				return list
			},
			check: checkExempt},
	}
}

// algorithmWord returns the attribute of an algorithm whose options have words of their own.
func algorithmWord(a core.Algorithm, doc string) attribute {
	return attribute{word: a.String(), kind: algorithm, doc: doc,
		read: func(d *draft) error { d.quota.Algorithm = a; return nil },
		write: func(d *draft) []string {
			usual := a == core.SlidingLog || a == core.FixedWindow && d.quota.Calendar.Zone != nil
			return words(d.quota.Algorithm == a && !usual, a.String())
		}}
}

// toggle returns the attribute of what a rule is or is not.
func toggle(word, doc string, fields core.Fields, of func(*draft) *bool) attribute {
	return attribute{word: word, doc: doc, fields: fields,
		read:  func(d *draft) error { *of(d) = true; return nil },
		write: func(d *draft) []string { return words(*of(d), word) }}
}

// number returns the attribute of a number, which is 0 if a rule has none.
func number(word, doc string, fields core.Fields, most int64, want string, of func(*draft) *int64) attribute {
	return attribute{word: word, doc: doc, fields: fields,
		read: func(d *draft) (err error) {
			*of(d), err = d.text.Number(most, want)
			return err
		},
		write: func(d *draft) []string { return words(*of(d) != 0, word, strconv.FormatInt(*of(d), 10)) }}
}

func (a attribute) checked(check func(*Rule, *problems)) attribute {
	a.check = check
	return a
}

// words returns a list, or nil.
func words(has bool, list ...string) []string {
	if !has {
		return nil
	}
	return list
}

func length(n int64) string { return grammar.FormatWindow(core.Duration(n)) }

// sameFunction compares a function, and says how two differ: a text has the name of a
// function only.
func sameFunction[F fmt.Stringer](field, maker string, same func(a, b F) bool, of func(*Rule) F) func(a, b *Rule) (bool, string) {
	return func(a, b *Rule) (bool, string) {
		was, is := of(a).String(), of(b).String()
		switch {
		case same(of(a), of(b)):
			return true, ""
		case was == is:
			return false, fmt.Sprintf("the %s %s, here another function of that name (call %s once, and use what it returns in both sets)", field, was, maker)
		case field == "key" || field == "values": // which the texts show
			return false, ""
		}
		return false, fmt.Sprintf("the %s %s, here %s", field, cmp.Or(was, "none"), cmp.Or(is, "none"))
	}
}

func equal[F comparable](a, b F) bool { return a == b }

func sameFallback(a, b *Rule) (bool, string) {
	switch was, is := a.OnRefusal.Fallback, b.OnRefusal.Fallback; {
	case was == is:
		return true, ""
	case was == nil:
		return false, "no Fallback, here one"
	case is == nil:
		return false, "a Fallback, here none"
	}
	return false, "a Fallback, here another"
}
