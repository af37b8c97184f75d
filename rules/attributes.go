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
	write func(*Rule, *core.Quota) []string      // the words; nil if the rule has none
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
			same: sameFunction("key", "limit.By", func(r *Rule) (string, any) { return r.Key.label, r.Key }, sameKey)},
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
		write: func(_ *Rule, q *core.Quota) []string {
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
		write: func(r *Rule, q *core.Quota) []string {
			return words(q.Algorithm == core.Distinct, "distinct", r.Values().String())
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
		same: sameFunction("values", "limit.By", func(r *Rule) (string, any) { return r.Values().label, r.Values() }, sameKey),
	}
}

// algorithmOptions are the fields of algorithms.
func algorithmOptions() []attribute {
	return []attribute{
		{word: "aligned", doc: "windows start on the clock, in UTC", fields: core.FieldAligned,
			read:  func(d *draft) error { d.quota.Aligned = true; return nil },
			write: func(_ *Rule, q *core.Quota) []string { return words(q.Aligned, "aligned") }},
		{word: "zone", doc: "windows are the hours, days, weeks or months of a time zone", fields: core.FieldCalendar,
			values: []string{"UTC"}, read: readZone,
			write: func(_ *Rule, q *core.Quota) []string {
				return words(q.Calendar.Zone != nil, "zone", q.Calendar.Zone.String())
			},
			same: func(a, b *Rule) (bool, string) { return sameZone(a.calendar().Zone, b.calendar().Zone), "" }},
		option("cells", "into how many cells the window is divided", core.FieldCells, core.MaxCells,
			"the number of cells, 2 to 60", func(q *core.Quota) *int64 { return &q.Cells }),
		option("burst", "how many units may come, or wait, at once", core.FieldBurst, core.MaxLimit,
			"a number after burst, such as 10", func(q *core.Quota) *int64 { return &q.Burst }),
		{word: "missing", doc: "how many units a new bucket lacks", fields: core.FieldMissing,
			read: func(d *draft) (err error) {
				d.quota.Missing, err = d.text.Number(core.MaxLimit, "a number after missing, such as 10")
				return err
			},
			write: func(r *Rule, q *core.Quota) []string {
				return words(q.Missing != 0 && !r.empty(), "missing", strconv.FormatInt(q.Missing, 10))
			}},
		{word: "empty", kind: "missing", doc: "a new bucket begins empty", fields: core.FieldMissing,
			read:  func(d *draft) error { d.begins = true; return nil },
			write: func(r *Rule, _ *core.Quota) []string { return words(r.empty(), "empty") }},
		{word: "wait", doc: "the longest wait in a queue", fields: core.FieldMaxWait,
			read: func(d *draft) (err error) {
				d.quota.MaxWait, err = d.text.Micros("a wait", `after "wait"`)
				return err
			},
			write: func(_ *Rule, q *core.Quota) []string { return words(q.MaxWait != 0, "wait", length(q.MaxWait)) },
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
			write: func(r *Rule, _ *core.Quota) []string { return words(r.Cost.fn != nil, "cost", r.Cost.name) },
			check: func(r *Rule, p *problems) {
				p.function("CostBy", r.Cost.name, r.Cost.fn != nil, r.Cost.fn != nil && *r.Cost.fn == nil)
			},
			same: sameFunction("Cost", "rules.CostBy", func(r *Rule) (string, any) { return r.Cost.name, r.Cost }, func(a, b any) bool { return a == b })},
		{word: "settle", doc: "the statuses of responses that count, such as 401,403; used, if the handler says what a request uses; or the function that says what it cost",
			read: readSettle,
			write: func(r *Rule, _ *core.Quota) []string {
				return words(r.Settle != (Settlement{}), "settle", r.Settle.text())
			},
			check: func(r *Rule, p *problems) {
				p.function("SettleBy", r.Settle.name, r.Settle.fn != nil, r.Settle.fn != nil && *r.Settle.fn == nil)
				if r.leases() && r.Settle != (Settlement{}) {
					p.addf("a Settle: a lease is released in full when the request is done: leave it out")
				}
			},
			same: sameFunction("Settle", "rules.SettleBy", func(r *Rule) (string, any) { return r.Settle.String(), r.Settle }, func(a, b any) bool { return a == b })},
	}
}

func refusalWords() []attribute {
	return []attribute{
		{word: "debt", doc: "how many units above the limit a settlement may take",
			read: func(d *draft) (err error) {
				d.Debt, err = d.text.Number(core.MaxLimit, "a number after debt, such as 20k")
				return err
			},
			write: func(r *Rule, _ *core.Quota) []string {
				return words(r.Debt != 0, "debt", strconv.FormatInt(r.Debt, 10))
			},
			check: func(r *Rule, p *problems) {
				switch q := r.Quota(); {
				case r.Debt < 0 || r.Debt > core.MaxLimit:
					p.addf("debt %d: write 1 to %d units, or leave it out", r.Debt, int64(core.MaxLimit))
				case r.Debt > 0 && q.Algorithm != noAlgorithm && !q.Algorithm.Owes():
					p.addf("debt: %v has none: leave it out, or write token-bucket, leaky-bucket, sliding-cells or fixed-window", q.Algorithm)
				}
			}},
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
			write: func(r *Rule, _ *core.Quota) []string {
				return words(r.OnStoreError != core.Local, "on-error", r.OnStoreError.String())
			},
			check: func(r *Rule, p *problems) {
				if r.OnStoreError > core.Refuse {
					p.addf("%v: write Local, Allow or Refuse", r.OnStoreError)
				}
			}},
		{word: refuse, doc: "what happens to a request that the rule refuses", again: true,
			values: refusals,
			read:   func(d *draft) error { return d.OnRefusal.read(d.text) },
			write:  func(r *Rule, _ *core.Quota) []string { return r.OnRefusal.words() },
			check:  checkRefusal,
			same:   sameFallback},
		{word: "message", doc: "the text that a refused client reads, in quotes",
			read: func(d *draft) (err error) {
				d.Message, err = d.text.Quoted(`a text in quotes after message, such as "Try again later."`)
				return err
			},
			write: func(r *Rule, _ *core.Quota) []string {
				return words(r.Message != "", "message", grammar.Quote(r.Message))
			},
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
			write: func(r *Rule, _ *core.Quota) []string { return words(r.Shadow != nil, "shadow") },
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
			write: func(r *Rule, _ *core.Quota) []string {
				return words(r.shadow().Enforced != 0, "enforced", strconv.Itoa(r.shadow().Enforced))
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
			write: func(r *Rule, _ *core.Quota) []string {
				return words(r.shadow().Replaces != "", "replaces", r.shadow().Replaces)
			},
			check: func(r *Rule, p *problems) {
				enforced := func(old Rule) bool { return old.name() == r.shadow().Replaces && old.Shadow == nil }
				if name := r.shadow().Replaces; name != "" && !slices.ContainsFunc(p.set.rules, enforced) {
					p.addf("replaces %q: write the name of a rule of the same set that is not a shadow", name)
				}
			}},
		{word: "hidden", doc: "the rule appears in no header",
			read:  func(d *draft) error { d.Hidden = true; return nil },
			write: func(r *Rule, _ *core.Quota) []string { return words(r.Hidden, "hidden") }},
		{word: "attempts", doc: "a request stays counted if a rule set behind this one refuses it",
			read:  func(d *draft) error { d.Attempts = true; return nil },
			write: func(r *Rule, _ *core.Quota) []string { return words(r.Attempts, "attempts") },
			check: func(r *Rule, p *problems) {
				switch {
				case r.Attempts && r.Settle != (Settlement{}):
					p.addf("attempts and settle: the answer settles the rule already: leave out attempts")
				case r.Attempts && (r.leases() || r.bars()):
					p.addf("attempts: %v gives nothing back that counts attempts: leave out attempts", r.algorithm())
				}
			}},
	}
}

func callerWords() []attribute {
	return []attribute{
		{word: "plan", doc: "another limit for callers on a plan", again: true,
			read:  func(d *draft) error { return d.amount(&d.Plans, "plan", "limit") },
			write: func(r *Rule, _ *core.Quota) []string { return amounts("plan", r.Plans) },
			check: checkPlans},
		{word: "reserve", doc: "units that are kept for a class of callers and those above it", again: true,
			read:  func(d *draft) error { return d.amount(&d.Reserve, "class", "number of units") },
			write: func(r *Rule, _ *core.Quota) []string { return amounts("reserve", r.Reserve) },
			check: checkReserve},
		{word: "exempt", doc: "callers that the rule neither charges nor refuses", again: true, values: grammar.ExemptKinds,
			read: readExempt,
			write: func(r *Rule, _ *core.Quota) (list []string) {
				for _, entry := range r.Exempt {
					list = append(list, "exempt", entry)
				}
				return list
			},
			check: checkExempt},
	}
}

// algorithmWord returns the attribute of an algorithm whose options have words of their
// own.
func algorithmWord(a core.Algorithm, doc string) attribute {
	return attribute{word: a.String(), kind: algorithm, doc: doc,
		read: func(d *draft) error { d.quota.Algorithm = a; return nil },
		write: func(_ *Rule, q *core.Quota) []string {
			usual := a == core.SlidingLog || a == core.FixedWindow && q.Calendar.Zone != nil
			return words(q.Algorithm == a && !usual, a.String())
		}}
}

// option returns the attribute of a number of a quota.
func option(word, doc string, f core.Fields, most int64, want string, in func(*core.Quota) *int64) attribute {
	return attribute{word: word, doc: doc, fields: f,
		read: func(d *draft) (err error) {
			*in(&d.quota), err = d.text.Number(most, want)
			return err
		},
		write: func(_ *Rule, q *core.Quota) []string {
			return words(*in(q) != 0, word, strconv.FormatInt(*in(q), 10))
		}}
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
func sameFunction(field, maker string, of func(*Rule) (name string, function any), same func(a, b any) bool) func(a, b *Rule) (bool, string) {
	return func(a, b *Rule) (bool, string) {
		was, f := of(a)
		is, g := of(b)
		switch {
		case same(f, g):
			return true, ""
		case was == is:
			return false, fmt.Sprintf("the %s %s, here another function of that name (call %s once, and use what it returns in both sets)", field, was, maker)
		case field == "key" || field == "values": // which the texts show
			return false, ""
		}
		return false, fmt.Sprintf("the %s %s, here %s", field, cmp.Or(was, "none"), cmp.Or(is, "none"))
	}
}

func sameKey(a, b any) bool { return a.(KeyResolver).equal(b.(KeyResolver)) }

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
