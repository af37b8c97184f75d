package rules

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/routelimit/limit/internal/grammar"
)

// A Refusal says what happens to a request that a rule refuses. A rule with the zero Refusal
// inherits the one of its set ([Set.OnRefusal]), then the one of limit.Options, and then means an
// answer with 429. Set at most one of Redirect, Degrade and Mark. Wait combines with all but Mark.
//
// If several rules refuse a request, it waits only if each of them has a Wait, and for the shortest
// Wait. Then the strictest outcome wins: an answer (429 or 503), then a redirect, then a Fallback,
// then the handler that degrades. Of equally strict outcomes, the one of the rule declared first
// wins. A rule that marks refuses nothing, and so does not count.
//
// Outcomes are for HTTP requests and RPC. limit.Policy.Take, limit.Policy.Wait and Decide
// of an adapter refuse, and leave the rest to their callers;
// only Mark applies to them too. A request that the store could not decide, or that
// limit.Refuse refuses during an outage, is answered with 503 whatever its rules say.
type Refusal struct {
	// Wait is the longest time that a request waits for its rules to admit it. After
	// that, the other fields say what happens to it. 0 means no wait. Requests and
	// callers of limit.Policy.Wait are served in the order in which they came.
	//
	// A request is refused at once if its rules certainly will not admit it within the
	// Wait, before the deadline of its context, or within nine tenths of the server's
	// WriteTimeout. The last tenth is left to the handler.
	//
	// A client that disconnects while it waits is charged nothing. The status is 499,
	// and Options.Observe is not called. On HTTP/1.1, net/http notices a disconnect only
	// after the body of the request is read, so a request with a body keeps its place.
	//
	// A waiting request asks its rules more than once, and each refusal would be a
	// strike of a [Ban]. So a Wait is an error in a set with a Ban, and such a set does
	// not inherit the Wait of Options.
	Wait time.Duration

	// Waiters is how many requests may wait for one key of the rule at once; 0 means
	// 100. Further requests are refused at once, as are those beyond limit.Options.Waiters.
	// Only waiters with the same limit, and of the same or a higher class, count.
	Waiters int

	// Status is the status of the answer: 429 or 503; 0 means 429. With a Redirect it is
	// 302, 303 or 307; 0 means 303.
	Status int

	// Redirect is where the request is sent instead of an answer: a path such as
	// "/busy", or an http or https URL. The response has Retry-After, and
	// Cache-Control: no-store. It is an error on RPC.
	Redirect string

	// Degrade sends the request to Fallback or, without one, to its own handler, which does
	// less work: limit.Decision.Outcome is "degraded". The request is charged nothing, holds no
	// leases, and is not settled. A [Ban] does not inherit Degrade, and needs a Fallback:
	// barred clients must not reach the handler.
	Degrade  bool
	Fallback http.Handler // an error on RPC

	// Mark admits the request and marks it: see limit.RuleDecision. The response has the header
	// RateLimit-Marked. Such a rule never refuses. It charges the requests that it has room for,
	// even if another rule refuses them, and a [Queue] delays none. [Concurrency], [Ban] and
	// [Distinct] cannot mark. They, a Queue and a Shadow do not inherit a Mark.
	Mark bool
}

const defaultWaiters = 100

// zero reports whether r is inherited.
func (r *Refusal) zero() bool {
	return r.Wait == 0 && r.Waiters == 0 && r.Status == 0 && r.Redirect == "" && !r.Degrade && r.Fallback == nil && !r.Mark
}

// OnRefusal returns the set with r as the OnRefusal of each rule that has none of its own.
func (s Set) OnRefusal(r Refusal) Set {
	r.Fallback = identified(r.Fallback)
	s.rules = slices.Clone(s.rules)
	for i := range s.rules {
		if rule := &s.rules[i]; rule.OnRefusal.zero() && rule.inherits(&r) {
			rule.OnRefusal = r
		}
	}
	return s
}

// inherits reports whether the Refusal of a set or of Options is for r too. A Mark is
// not for all: the slot in a queue means a wait, concurrency holds leases, bans and
// distinct values are for refusing, and a shadow refuses nothing already. A Degrade is
// not for bans: it would let barred clients in.
func (r *Rule) inherits(from *Refusal) bool {
	switch {
	case from.Mark:
		return !r.queues() && !r.leases() && !r.noQuota() && r.Shadow == nil
	case from.Degrade:
		return !r.bars()
	}
	return true
}

// problems returns everything wrong with r.
func (r *Refusal) problems() (list []string) {
	add := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	if r.Wait < 0 {
		add("refuse wait %v: write how long a request may wait, or 0 for not at all", r.Wait)
	}
	switch {
	case r.Waiters < 0:
		add("%d waiters: write how many may wait for one key, or 0 for %d", r.Waiters, defaultWaiters)
	case r.Waiters > 0 && r.Wait == 0:
		add("%d waiters: they need a Wait: write how long, or leave out the Waiters", r.Waiters)
	}
	switch redirects := r.Redirect != ""; {
	case redirects && (r.Degrade || r.Mark), r.Degrade && r.Mark:
		add("several outcomes: write one of Redirect, Degrade and Mark")
	case redirects:
		if r.Status != 0 && r.Status != 302 && r.Status != 303 && r.Status != 307 {
			add("status %d of a redirect: write 302, 303 or 307", r.Status)
		}
		if problem := locationProblem(r.Redirect); problem != "" {
			add("redirect to %q: %s", r.Redirect, problem)
		}
	case r.Degrade && r.Status != 0, r.Mark && r.Status != 0:
		add("status %d: leave it out, since the handler answers", r.Status)
	case r.Status != 0 && r.Status != 429 && r.Status != 503:
		add("status %d: write 429 or 503", r.Status)
	}
	if r.Mark && r.Wait != 0 {
		add("a rule that marks refuses nothing: leave out the Wait")
	}
	if r.Fallback != nil && !r.Degrade {
		add("a Fallback: write Degrade: true with it")
	}
	return list
}

// locationProblem returns why a response must not redirect to a location, or "".
func locationProblem(location string) string {
	const want = `write a path such as "/busy", or a URL such as "https://example.com/busy"`
	for _, c := range []byte(location) {
		switch {
		case c <= ' ' || c >= 0x7f:
			return "it has a space, a control character or a letter outside of ASCII: percent-encode it"
		case c == '\\':
			return "browsers read a backslash as a slash: percent-encode it as %5C"
		}
	}
	if strings.HasPrefix(location, "//") {
		return "it leads to another host: " + want
	}
	u, err := url.Parse(location)
	switch {
	case err != nil:
		return want
	case u.Scheme == "" && strings.HasPrefix(location, "/"):
		return ""
	case (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" && u.User == nil:
		return ""
	}
	return want
}

const refuse = "refuse" // the word before each clause of a Refusal

// refusals are the words that begin a clause, after refuse.
var refusals = []string{"429", "503", "redirect", "degrade", "mark", "wait"}

// maxWaiters is the largest number after waiters.
const maxWaiters = 1_000_000

// hasOutcome reports whether r says what the request meets besides a wait.
func (r *Refusal) hasOutcome() bool { return r.Status != 0 || r.Redirect != "" || r.Degrade || r.Mark }

// words returns the words of the clauses of r, each of which begins with refuse.
func (r *Refusal) words() []string {
	outcome := slices.Concat(words(r.Redirect != "", "redirect", r.Redirect), words(r.Degrade, "degrade"), words(r.Mark, "mark"),
		words(r.Status != 0, strconv.Itoa(r.Status)))
	return slices.Concat(words(r.Wait != 0, refuse, "wait", grammar.FormatWindow(r.Wait)),
		words(r.Waiters != 0, "waiters", strconv.Itoa(r.Waiters)), words(outcome != nil, refuse), outcome)
}

// read reads a clause after the word refuse.
func (r *Refusal) read(text *grammar.Reader) (err error) {
	word := text.Peek()
	switch {
	case !slices.Contains(refusals, word):
		return text.Errorf("%s after refuse", grammar.OneOf(refusals))
	case word == "wait" && r.Wait != 0:
		return text.Errorf(`one "refuse wait"`)
	case word != "wait" && r.hasOutcome():
		return text.Errorf("only one of %s", grammar.OneOf(refusals[:len(refusals)-1]))
	}
	text.Next()
	switch word {
	case "429", "503":
		r.Status, _ = strconv.Atoi(word)
	case "redirect":
		return r.readRedirect(text)
	case "degrade":
		r.Degrade = true
	case "mark":
		r.Mark = true
	case "wait":
		if r.Wait, err = text.Length("a wait", `after "refuse wait"`); err != nil || !text.Accept("waiters") {
			return err
		}
		var waiters int64
		waiters, err = text.Number(maxWaiters, "how many may wait for one key, such as 50")
		r.Waiters = int(waiters)
	}
	return err
}

func (r *Refusal) readRedirect(text *grammar.Reader) (err error) {
	r.Redirect, err = text.Word("a path such as /busy, or an http or https URL, after redirect")
	if err != nil {
		return err
	}
	switch word := text.Peek(); {
	case text.Accept("302", "303", "307"):
		r.Status, _ = strconv.Atoi(word)
	case word != "" && '0' <= word[0] && word[0] <= '9':
		return text.Errorf("302, 303 or 307 after the location")
	}
	return nil
}

// UnmarshalText reads the words after refuse: "wait 2s refuse redirect /busy". The error
// joins one [*Error] for each thing wrong.
func (r *Refusal) UnmarshalText(text []byte) error {
	var read Refusal
	set, reader := Set{text: string(text)}, &grammar.Reader{Text: string(text)}
	for first := true; first || reader.Accept(refuse); first = false {
		if err := read.read(reader); err != nil {
			return set.misread(err)
		}
	}
	if reader.Peek() != "" {
		return set.misread(reader.Errorf("the end, or refuse and %s", grammar.OneOf(refusals)))
	}
	var errs []error
	for _, problem := range read.problems() {
		errs = append(errs, &Error{Text: set.text, Problem: problem})
	}
	if errs == nil {
		*r = read
	}
	return errors.Join(errs...)
}

// Validate returns what is wrong with the Refusal of a program's options, or nil.
func (r *Refusal) Validate() error {
	var errs []error
	for _, problem := range r.problems() {
		errs = append(errs, errors.New("limit: OnRefusal: "+problem))
	}
	return errors.Join(errs...)
}

// Refusal returns what a request meets that r refuses, where the program's options have a
// Refusal of their own.
func (r *Rule) Refusal(options Refusal) Refusal {
	switch {
	case !r.OnRefusal.zero():
		return r.OnRefusal
	case !r.inherits(&options):
		return Refusal{}
	}
	return options
}
