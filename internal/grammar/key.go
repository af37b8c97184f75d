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
	Name  string // of a header, cookie, query parameter, path value or function
	Parts []Key  // of And and Or, at least two
}

// A Kind is the kind of a Key. The zero Kind is no key.
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
	Func // a function of the program
)

var kindWords = [...]string{Global: "global", IP: "ip", User: "user",
	Header: "header", Cookie: "cookie", Query: "query", Path: "path", And: "and", Or: "or"}

// KeyWords returns the words that have a meaning in a key.
func KeyWords() []string { return append(slices.Clone(kindWords[1:]), "per") }

// Keys are the words that begin a key, for completion.
var Keys = kindWords[IP:And]

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

// ParseKey reads a resolver, also "global". A word that is no other key is a function.
func ParseKey(text string) (Key, error) {
	r := &Reader{Text: text, any: true}
	if r.Accept("global") && r.Peek() == "" {
		return Key{Kind: Global}, nil
	}
	r.At = 0
	k, err := r.Key()
	if err == nil && r.Peek() != "" {
		err = r.Errorf(`"and" or "or" and another key, or the end`)
	}
	return k, err
}

// Key reads a key.
func (r *Reader) Key() (Key, error) {
	r.skip(blanks)
	start := r.At
	k, err := r.key(0)
	if err == nil && k.nesting() > MaxNesting {
		r.At = start
		err = r.Errorf(`a key with at most %d nested "and" and "or"`, MaxNesting)
	}
	return k, err
}

// key reads a key within depth parentheses.
func (r *Reader) key(depth int) (Key, error) {
	return r.list(Or, func() (Key, error) {
		return r.list(And, func() (Key, error) { return r.operand(depth) })
	})
}

// list reads one part, or several with the word of a kind between them.
func (r *Reader) list(kind Kind, part func() (Key, error)) (Key, error) {
	var parts []Key
	for {
		k, err := part()
		if err != nil {
			return k, err
		}
		parts = append(parts, k)
		if !r.Accept(kindWords[kind]) {
			break
		}
	}
	if len(parts) == 1 {
		return parts[0], nil
	}
	return Key{Kind: kind, Parts: parts}, nil
}

// operand reads a key without "and" and "or", or any key in parentheses.
func (r *Reader) operand(depth int) (Key, error) {
	word := r.Peek()
	kind := Kind(max(0, slices.Index(kindWords[:], word)))
	switch {
	case word == "(" && depth == MaxNesting:
		return Key{}, r.Errorf("at most %d nested parentheses", MaxNesting)
	case word == "(":
		r.Next()
		k, err := r.key(depth + 1)
		if err == nil && !r.Accept(")") {
			err = r.Errorf(`"and" or "or" and another key, or ")"`)
		}
		return k, err
	case kind == Global:
		return Key{}, r.Errorf(`a key such as ip or user, or "global" without "per"`)
	case kind == IP || kind == User:
		r.Next()
		return Key{Kind: kind}, nil
	case kind == Header || kind == Cookie || kind == Query || kind == Path:
		r.Next()
		name, err := r.Word("the name of the " + word)
		return Key{Kind: kind, Name: name}, err
	case slices.Contains(r.Functions, word), r.any && kind == 0 && IsWord(word):
		return Key{Kind: Func, Name: r.Next()}, nil
	}
	want := "a key: ip, user, header NAME, cookie NAME, query NAME, path NAME, "
	for _, name := range r.Functions {
		want += name + ", "
	}
	return Key{}, r.Unexpected(want + "or several of them with and, or and parentheses")
}
