package grammar

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// A Refusal is what a text says that a refused request meets.
type Refusal struct {
	Wait     time.Duration
	Waiters  int64
	Status   int
	Redirect string
	Degrade  bool
	Mark     bool
}

// Words of rules of any algorithm.
const (
	refuse   = "refuse"
	shadow   = "shadow"
	enforced = "enforced"
	replaces = "replaces"
	hidden   = "hidden"
)

// maxWaiters is the largest number after waiters.
const maxWaiters = 1_000_000

// HasText reports whether a location can be written after redirect.
func HasText(location string) bool { return !strings.ContainsAny(location, delimiters) }

// hasOutcome reports whether r says what the request meets besides a wait.
func (r *Refusal) hasOutcome() bool {
	return r.Status != 0 || r.Redirect != "" || r.Degrade || r.Mark
}

// words returns the words of the clauses of r, each of which begins with refuse.
func (r *Refusal) words() []string {
	var words []string
	if r.Wait != 0 {
		words = append(words, refuse, "wait", FormatWindow(r.Wait))
		if r.Waiters != 0 {
			words = append(words, "waiters", strconv.FormatInt(r.Waiters, 10))
		}
	}
	if !r.hasOutcome() {
		return words
	}
	words = append(words, refuse)
	switch {
	case r.Redirect != "":
		words = append(words, "redirect", r.Redirect)
	case r.Degrade:
		words = append(words, "degrade")
	case r.Mark:
		words = append(words, "mark")
	}
	if r.Status != 0 {
		words = append(words, strconv.Itoa(r.Status))
	}
	return words
}

// refusal reads a clause after the word refuse.
func (p *parser) refusal(r *Refusal) (err error) {
	word := p.peek()
	if word == "wait" {
		if r.Wait != 0 {
			return p.errorf(`one "refuse wait"`)
		}
		p.at += len(word)
		return p.refusalWait(r)
	}
	switch word {
	case "429", "503", "redirect", "degrade", "mark":
	default:
		return p.errorf("429, 503, redirect, degrade, mark or wait after refuse")
	}
	if r.hasOutcome() {
		return p.errorf("one of 429, 503, redirect, degrade and mark")
	}
	p.at += len(word)
	switch word {
	case "429":
		r.Status = http.StatusTooManyRequests
	case "503":
		r.Status = http.StatusServiceUnavailable
	case "redirect":
		return p.redirect(r)
	case "degrade":
		r.Degrade = true
	case "mark":
		r.Mark = true
	}
	return nil
}

func (p *parser) refusalWait(r *Refusal) (err error) {
	p.skip(blanks)
	if r.Wait, err = p.length("a wait", `after "refuse wait"`); err != nil || !p.accept("waiters") {
		return err
	}
	r.Waiters, err = p.number(maxWaiters, "how many may wait for one key, such as 50")
	return err
}

func (p *parser) redirect(r *Refusal) error {
	p.skip(blanks)
	if r.Redirect = p.word(); r.Redirect == "" {
		return p.errorf("a path such as /busy, or an http or https URL, after redirect")
	}
	p.at += len(r.Redirect)
	switch word := p.peek(); {
	case word == "302" || word == "303" || word == "307":
		r.Status, _ = strconv.Atoi(word)
		p.at += len(word)
	case leading(word, isDigit) != "":
		return p.errorf("302, 303 or 307 after the location")
	}
	return nil
}

// ruleName reads the name of another rule.
func (p *parser) ruleName() (string, error) {
	name := p.peek()
	if !ValidName(name) {
		return "", p.errorf("the name of a rule after replaces")
	}
	p.at += len(name)
	return name, nil
}

// ParseRefusal reads what a refused request meets, in the words after refuse: "wait 2s
// refuse redirect /busy". The error is a [*ParseError].
func ParseRefusal(text string) (r Refusal, err error) {
	p := parser{lexer{text: text}}
	for first := true; first || p.accept(refuse); first = false {
		if err := p.refusal(&r); err != nil {
			return r, err
		}
	}
	if p.peek() != "" {
		return r, p.errorf("the end, or refuse and 429, 503, redirect, degrade, mark or wait")
	}
	return r, nil
}
