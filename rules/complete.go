package rules

import (
	"slices"
	"strings"
)

// Complete returns texts that continue a text of rules by one more word, for shells and
// editors: the words of attributes that a rule does not have yet, and the values of the
// last one, if they are few. It proposes nothing before a rule has its key.
func Complete(text string) (list []string) {
	i := strings.LastIndexAny(text, " \t\n;") + 1
	before, begun := text[:i], text[i:]
	had := strings.Fields(before[strings.LastIndexAny(before, ";\n")+1:])
	if len(had) == 0 && begun != "" && strings.HasPrefix(with, begun) {
		return []string{before + with}
	}
	global := len(had) > 1 && had[1] == "global"
	if !global && (len(had) < 3 || had[1] != "per") || had[0] == with {
		return nil
	}
	propose := func(word string) {
		if strings.HasPrefix(word, begun) {
			list = append(list, before+word)
		}
	}
	if a := attributeOf(had[len(had)-1]); a != nil && a.values != nil {
		for _, value := range a.values {
			propose(value)
		}
		return list
	}
	for _, a := range table() {
		if a.word != "" && (a.again || !slices.Contains(had, a.word)) {
			propose(a.word)
		}
	}
	return list
}

// Words describes the words that may follow the key of a rule: a line for each.
func Words() string {
	var b strings.Builder
	for _, a := range table() {
		if a.word != "" {
			b.WriteString(a.word + ": " + a.doc + "\n")
		}
	}
	return b.String()
}
