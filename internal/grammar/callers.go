package grammar

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/routelimit/limit/core"
)

// Words of rules of any algorithm that distinguish callers. Each may stand several
// times.
const (
	plan    = "plan"
	reserve = "reserve"
	exempt  = "exempt"
)

// MaxCallers is how many plans, classes or exemptions a rule may name.
const MaxCallers = 64

// ExemptKinds are the first words of an exemption.
var ExemptKinds = []string{"ip", "user", "plan", "class"}

// repeatable reports whether an attribute may stand several times. Each clause of
// refuse may stand once: see refusal.
func repeatable(word string) bool {
	return word == refuse || word == plan || word == reserve || word == exempt
}

// writeCallers writes the words that distinguish callers.
func (r Rule) writeCallers(word func(...string)) {
	for _, name := range slices.Sorted(maps.Keys(r.Plans)) {
		word(plan, name, strconv.FormatInt(r.Plans[name], 10))
	}
	for _, name := range slices.Sorted(maps.Keys(r.Reserve)) {
		word(reserve, name, strconv.FormatInt(r.Reserve[name], 10))
	}
	for _, entry := range r.Exempt {
		word(exempt, entry)
	}
}

// amount reads a name and a number into m.
func (p *parser) amount(m *map[string]int64, of, number string) error {
	name := p.peek()
	_, twice := (*m)[name]
	switch {
	case !ValidName(name):
		return p.errorf("the name of a %s: 1 to %d letters, digits, '.', '_' or '-'", of, MaxName)
	case twice:
		return p.errorf("each %s once", of)
	case len(*m) == MaxCallers:
		return p.errorf("at most %d of %s", MaxCallers, of)
	}
	p.at += len(name)
	n, err := p.number(core.MaxLimit, "the "+number+" after the name of the "+of+", such as 100")
	if err != nil {
		return err
	}
	if *m == nil {
		*m = make(map[string]int64)
	}
	(*m)[name] = n
	return nil
}

// exempt reads an exemption.
func (p *parser) exempt(r *Rule) error {
	kind := p.peek()
	switch {
	case !slices.Contains(ExemptKinds, kind):
		return p.errorf("%s after exempt", oneOf(ExemptKinds))
	case len(r.Exempt) == MaxCallers:
		return p.errorf("at most %d exemptions: put more into a list of package access", MaxCallers)
	}
	p.at += len(kind)
	p.skip(blanks)
	value := p.word()
	if value == "" {
		return p.errorf("%s after exempt %s", map[string]string{"ip": "an address or a prefix such as 10.0.0.0/8",
			"user": "the name of a user", "plan": "the name of a plan", "class": "the name of a class"}[kind], kind)
	}
	p.at += len(value)
	r.Exempt = append(r.Exempt, kind+" "+value)
	return nil
}

// SplitExemption returns the kind and the value of an exemption, which is "" if the
// text is not one of two words.
func SplitExemption(text string) (kind, value string) {
	kind, value, _ = strings.Cut(text, " ")
	if !slices.Contains(ExemptKinds, kind) || !IsWord(value) {
		return kind, ""
	}
	return kind, value
}
