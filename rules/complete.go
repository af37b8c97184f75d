package rules

import (
	"slices"
	"strings"
)

// Complete returns texts that continue a text of rules by one more word, for shells and
// editors: the words of attributes that a rule does not have yet, and the values of the
// last one, if they are few. It proposes nothing before a rule has its key.
func Complete(text string) (list []string) {
	rule := text[strings.LastIndexAny(text, ";\n")+1:]
	had := strings.Fields(rule)
	if len(had) > 0 && !strings.HasSuffix(rule, " ") {
		had = had[:len(had)-1] // the last one has only begun
	}
	global := len(had) > 1 && had[1] == "global"
	if !global && (len(had) < 3 || had[1] != "per") {
		return nil
	}
	before, begun := cutLast(text)
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

// cutLast splits a text before its last word, which may be empty.
func cutLast(text string) (before, word string) {
	i := strings.LastIndexAny(text, " \t\n;") + 1
	return text[:i], text[i:]
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
