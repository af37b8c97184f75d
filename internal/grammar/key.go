package grammar

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A Key names a value of a request. Requests with the same value share a quota.
type Key struct {
	Kind  Kind
	Name  string // of a header, cookie, query parameter or path value
	Parts []Key  // of And and Or, at least two
}

// A Kind is the kind of a Key. The zero Kind is a key that has no text, such as
// a function; Key.String returns its Name.
type Kind uint8

// The kinds.
const (
	Global Kind = iota + 1
	IP
	User
	Header
	Cookie
	Query
	Path
	And
	Or
)

var kindWords = [...]string{Global: "global", IP: "ip", User: "user",
	Header: "header", Cookie: "cookie", Query: "query", Path: "path", And: "and", Or: "or"}

// KeyWords returns the words that have a meaning in a key.
func KeyWords() []string { return append(slices.Clone(kindWords[1:]), "per") }

// MaxNesting is how many nested parentheses a key may have.
const MaxNesting = 8

// String returns k as a text.
func (k Key) String() string {
	switch k.Kind {
	case Global, IP, User:
		return kindWords[k.Kind]
	case Header, Cookie, Query, Path:
		return kindWords[k.Kind] + " " + k.Name
	case And, Or:
		texts := make([]string, len(k.Parts))
		for i, part := range k.Parts {
			texts[i] = part.String()
			if part.Kind == And || part.Kind == Or {
				texts[i] = "(" + texts[i] + ")"
			}
		}
		return strings.Join(texts, " "+kindWords[k.Kind]+" ")
	}
	return k.Name
}

// Names returns the names of all keys of a kind in k.
func (k Key) Names(kind Kind) (names []string) {
	if k.Kind == kind {
		names = append(names, k.Name)
	}
	for _, part := range k.Parts {
		names = append(names, part.Names(kind)...)
	}
	return names
}

// nesting returns how many nested parentheses k needs.
func (k Key) nesting() int {
	deepest := -1
	for _, part := range k.Parts {
		deepest = max(deepest, part.nesting())
	}
	return deepest + min(1, len(k.Parts))
}

// IsWord reports whether s is one word of a text.
func IsWord(s string) bool {
	return s != "" && utf8.ValidString(s) && !strings.ContainsFunc(s, func(c rune) bool {
		return strings.ContainsRune(delimiters, c) || !unicode.IsPrint(c)
	})
}

// wholeKey reads a key that is in no other.
func (p *parser) wholeKey() (Key, error) {
	p.skip(blanks)
	start := p.at
	k, err := p.key(0)
	if err == nil && k.nesting() > MaxNesting {
		p.at = start
		err = p.errorf(`a key with at most %d nested "and" and "or"`, MaxNesting)
	}
	return k, err
}

// key reads a key within depth parentheses.
func (p *parser) key(depth int) (Key, error) {
	return p.list(Or, func() (Key, error) {
		return p.list(And, func() (Key, error) { return p.operand(depth) })
	})
}

// list reads one part, or several with the word of a kind between them.
func (p *parser) list(kind Kind, part func() (Key, error)) (Key, error) {
	var parts []Key
	for {
		k, err := part()
		if err != nil {
			return k, err
		}
		parts = append(parts, k)
		if !p.accept(kindWords[kind]) {
			break
		}
	}
	if len(parts) == 1 {
		return parts[0], nil
	}
	return Key{Kind: kind, Parts: parts}, nil
}

// operand reads a key without "and" and "or", or any key in parentheses.
func (p *parser) operand(depth int) (Key, error) {
	word := p.peek()
	kind := Kind(max(0, slices.Index(kindWords[:], word)))
	switch {
	case word == "(" && depth == MaxNesting:
		return Key{}, p.errorf("at most %d nested parentheses", MaxNesting)
	case word == "(":
		p.at++
		k, err := p.key(depth + 1)
		if err == nil && !p.accept(")") {
			err = p.errorf(`"and" or "or" and another key, or ")"`)
		}
		return k, err
	case kind == Global:
		return Key{}, p.errorf(`a key such as ip or user, or "global" without "per"`)
	case kind == IP || kind == User:
		p.at += len(word)
		return Key{Kind: kind}, nil
	case kind == Header || kind == Cookie || kind == Query || kind == Path:
		p.at += len(word)
		p.skip(blanks)
		name := p.word()
		if name == "" {
			return Key{}, p.errorf("the name of the %s", word)
		}
		p.at += len(name)
		return Key{Kind: kind, Name: name}, nil
	}
	return Key{}, p.unexpected("a key: ip, user, header NAME, cookie NAME, query NAME, path NAME, " +
		"or several of them with and, or and parentheses")
}
