package overrides

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	maxName    = 512 // of a document
	maxPrefix  = 128 // of a pattern: longer keys are hashes
	hashPrefix = "sha256:"
)

// A name is what an override is for.
type name struct {
	ruleName
	key     string // or what the keys of a pattern begin with
	pattern bool
}

type ruleName struct{ policy, rule string }

func nameOf(e *Override) (name, error) {
	n := name{ruleName{e.Policy, e.Rule}, e.Key, e.Pattern != ""}
	if n.pattern {
		prefix, star := strings.CutSuffix(e.Pattern, "*")
		n.key = prefix
		switch {
		case e.Key != "":
			return n, fmt.Errorf("overrides: key %q and pattern %q: write one of them", e.Key, e.Pattern)
		case !star || prefix == "" || strings.Contains(prefix, "*"):
			return n, fmt.Errorf("overrides: pattern %q: write what keys begin with, and one star at the end, such as free-*; "+
				"for a key with a star, write it as Key; for all keys, change the rule", e.Pattern)
		case len(prefix) > maxPrefix || strings.HasPrefix(prefix, hashPrefix):
			return n, fmt.Errorf("overrides: pattern %q: keys of more than %d bytes are hashes, which no pattern matches: "+
				"write the Key that operate.Key returns, or a shorter pattern", e.Pattern, maxPrefix)
		case cut.MatchString(prefix):
			return n, fmt.Errorf("overrides: pattern %q: it ends within a number of an address, and so matches other networks: "+
				"end it behind the separator, such as 192.0.2.*, or write a Key for each address", e.Pattern)
		}
	}
	if e.Policy == "" || e.Rule == "" {
		return n, fmt.Errorf("overrides: policy %q, rule %q: write the names that limit.Decision shows", e.Policy, e.Rule)
	}
	if length := len(n.document()); length > maxName {
		return n, fmt.Errorf("overrides: the policy, rule and key have %d bytes: the most is %d", length, maxName)
	}
	return n, nil
}

// cut matches what an address begins with, up to within a number. Behind "or" in a key, the
// number of the alternative comes first. A single number may begin the name of a user.
var cut = regexp.MustCompile(`^([0-9]+=)?([0-9]{1,3}(\.[0-9]{1,3}){1,3}|[0-9a-f]{4}(:[0-9a-f]{0,4})*:[0-9a-f]{1,4})$`)

// document returns the name of the document of an override. Versions without patterns ignore one
// with a star.
func (n *name) document() string {
	text := strconv.Quote(n.policy) + " " + strconv.Quote(n.rule) + " " + strconv.Quote(n.key)
	if n.pattern {
		text += "*"
	}
	return text
}

// read returns the override of a document, without its value.
func read(document string) (e Override, n name, ok bool) {
	_, err := fmt.Sscanf(document, "%q %q %q", &e.Policy, &e.Rule, &e.Key)
	if strings.HasSuffix(document, "*") {
		e.Key, e.Pattern = "", e.Key+"*"
	}
	n, problem := nameOf(&e)
	return e, n, err == nil && problem == nil && n.document() == document
}

type known struct {
	overrides map[name]*Override
	prefixes  map[ruleName][]int // the lengths of the patterns of a rule, the longest first
}

func (k *known) add(n name, e *Override) {
	k.overrides[n] = e
	lengths := k.prefixes[n.ruleName]
	if at, found := slices.BinarySearchFunc(lengths, len(n.key), func(length, of int) int { return of - length }); n.pattern && !found {
		k.prefixes[n.ruleName] = slices.Insert(lengths, at, len(n.key))
	}
}

// limit returns the limit of a key, or 0. Patterns cost one look-up for each of their lengths,
// however many they are.
func (k *known) limit(n name) int64 {
	if e, ok := k.overrides[n]; ok && !e.ended() {
		return e.Limit
	}
	lengths := k.prefixes[n.ruleName]
	if len(lengths) == 0 {
		return 0
	}
	key, most := n.key, reach(n.key)
	n.pattern = true
	for _, length := range lengths {
		if length > most {
			continue
		}
		n.key = key[:length]
		if e, ok := k.overrides[n]; ok && !e.ended() {
			return e.Limit
		}
	}
	return 0
}

// Matches reports whether e is for a key, as operate.Key returns it.
func (e *Override) Matches(key string) bool {
	prefix, pattern := strings.CutSuffix(e.Pattern, "*")
	if !pattern {
		return key == e.Key
	}
	return len(prefix) <= reach(key) && strings.HasPrefix(key, prefix)
}

// reach returns how many bytes of a key patterns can match: those before a hash, since a client
// can find a value whose hash begins as a pattern does.
func reach(key string) int {
	if len(key) > maxPrefix {
		return 0 // requests have its hash
	}
	if hash := strings.Index(key, hashPrefix); hash >= 0 {
		return hash
	}
	return len(key)
}
