// Package grammar reads and writes the parts of rules as text: tokens, names, numbers,
// lengths of time and keys, as in "login: 20/1h per user or ip". Package limit has the
// words for the attributes of rules. The grammar is in the comment of limit.Parse.
package grammar

import (
	"slices"
	"strings"
)

// MaxName is the length in bytes of the longest name.
const MaxName = 64

// ValidName reports whether name can be the name of a rule or of a policy.
func ValidName(name string) bool {
	return name != "" && len(name) <= MaxName && !strings.ContainsFunc(name, func(c rune) bool {
		return !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
			c == '.' || c == '_' || c == '-')
	})
}

// HasText reports whether a location can be one word.
func HasText(location string) bool { return !strings.ContainsAny(location, delimiters) }

// MaxCallers is how many plans, classes or exemptions a rule may name.
const MaxCallers = 64

// DefaultClass is the class of requests without one.
const DefaultClass = "default"

// DefaultClasses are the classes of a limiter that sets none, the highest first.
var DefaultClasses = []string{"critical", DefaultClass, "background"}

// ExemptKinds are the first words of an exemption.
var ExemptKinds = []string{"ip", "user", "plan", "class"}

// SplitExemption returns the kind and the value of an exemption, which is "" if there is none.
func SplitExemption(text string) (kind, value string) {
	kind, value, _ = strings.Cut(text, " ")
	if !slices.Contains(ExemptKinds, kind) || !IsWord(value) {
		return kind, ""
	}
	return kind, value
}
