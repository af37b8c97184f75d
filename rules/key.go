package rules

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/clientip"
	"github.com/routelimit/limit/internal/grammar"
)

// A KeyResolver turns a request into a key: requests with the same key share a
// quota. Use limit.ByIP, limit.ByUser, limit.Everyone and the functions that begin with By,
// and combine them with Or and And. The zero KeyResolver is invalid.
//
// All requests without a key (no such header, no user) share one quota: a missing key never means
// no limit. Where that is too strict, add another resolver with Or. White space counts as no value.
//
// Keys are compared byte for byte. A key longer than 128 bytes is replaced by its SHA-256.
type KeyResolver struct {
	kind  grammar.Kind
	label string                      // in the text grammar
	name  string                      // of the header, cookie, …
	parts []KeyResolver               // of Or and And
	fn    *func(*http.Request) string // of By: the address tells functions apart
}

// NewKey returns the resolver of a kind, and of a name if the kind has one. It is for
// package limit, whose functions and variables that begin with By make resolvers.
func NewKey(kind grammar.Kind, name string) KeyResolver {
	if kind == grammar.Header {
		name = http.CanonicalHeaderKey(name)
	}
	return labeled(KeyResolver{kind: kind, name: name})
}

// KeyBy returns a resolver of what a function returns.
func KeyBy(name string, fn func(*http.Request) string) KeyResolver {
	return KeyResolver{kind: grammar.Func, label: name, name: name, fn: &fn}
}

// Or resolves the first of k and other that the request has, such as limit.ByUser.Or(limit.ByIP).
// Equal values of different resolvers are different keys. a.Or(b).Or(c) is the first of three.
func (k KeyResolver) Or(other KeyResolver) KeyResolver { return joined(grammar.Or, k, other) }

// And resolves k and other together: each combination of values has its own quota. An absent value
// counts as a value, but a request without any of them has no key. a.And(b).And(c) combines three.
func (k KeyResolver) And(other KeyResolver) KeyResolver { return joined(grammar.And, k, other) }

// joined returns a resolver of the two, or of their parts if they are of the kind.
func joined(kind grammar.Kind, two ...KeyResolver) KeyResolver {
	k := KeyResolver{kind: kind}
	for _, part := range two {
		if part.kind == kind {
			k.parts = append(k.parts, part.parts...)
		} else {
			k.parts = append(k.parts, part)
		}
	}
	return labeled(k)
}

// Kind returns the kind of k, or 0 for the zero KeyResolver.
func (k *KeyResolver) Kind() grammar.Kind { return k.kind }

// Name returns the name of the header, cookie, query parameter or path value, or of the function.
func (k *KeyResolver) Name() string { return k.name }

// Call calls the function of k, and returns its result.
func (k *KeyResolver) Call(r *http.Request) string { return (*k.fn)(r) }

// Joins reports whether k has parts.
func (k *KeyResolver) Joins() bool { return len(k.parts) > 0 }

// String returns k in the text grammar: "ip", "header X-Api-Key", "user or ip".
func (k KeyResolver) String() string { return k.label }

// labeled returns k with its label.
func labeled(k KeyResolver) KeyResolver {
	k.label = k.syntax().String()
	return k
}

// problems returns everything wrong with a resolver within so many others.
func (k KeyResolver) problems(depth int) []string {
	switch k.kind {
	case 0:
		return []string{"no key: write which requests share the quota, such as Key: limit.ByIP"}
	case grammar.Header, grammar.Cookie:
		if k.name == "Host" && k.kind == grammar.Header {
			return []string{"key \"header Host\": net/http keeps it elsewhere: " +
				"write limit.By with a function that returns Request.Host"}
		}
		if !clientip.ValidName(k.name) {
			return []string{fmt.Sprintf("key %q: write a name such as X-API-Key, "+
				"without spaces and the signs that HTTP forbids in names", k)}
		}
	case grammar.Query, grammar.Path:
		if !grammar.IsWord(k.name) {
			return []string{fmt.Sprintf("key %q: write a name without spaces, semicolons and parentheses", k)}
		}
	case grammar.Func:
		if *k.fn == nil || !grammar.IsWord(k.name) || slices.Contains(grammar.KeyWords(), k.name) {
			return []string{fmt.Sprintf("limit.By(%q, …): write a function that is not nil, and a name without "+
				"spaces, semicolons and parentheses that is not %s", k.name, strings.Join(grammar.KeyWords(), ", "))}
		}
	case grammar.Or, grammar.And:
		if depth > grammar.MaxNesting {
			return []string{fmt.Sprintf("a key nested more than %d deep: write a function with limit.By", grammar.MaxNesting)}
		}
		var list []string
		for _, part := range k.parts {
			if part.kind == grammar.Global {
				list = append(list, fmt.Sprintf("key %q: limit.Everyone has no value: leave it out", k))
				continue
			}
			list = append(list, part.problems(depth+1)...)
		}
		return list
	}
	return nil
}

// Uses reports whether k contains a resolver of the given kind.
func (k KeyResolver) Uses(kind grammar.Kind) bool {
	return k.kind == kind || slices.ContainsFunc(k.parts, func(part KeyResolver) bool { return part.Uses(kind) })
}

// Resolve returns the key of a request: "" if it has none, and otherwise a
// string that no other combination of values resolves to. The function returns the
// value of a resolver that has no parts.
func (k *KeyResolver) Resolve(value func(*KeyResolver) string) string {
	switch k.kind {
	case grammar.Global:
		return ""
	case grammar.Or:
		for i := range k.parts {
			if v := k.parts[i].Resolve(value); v != "" {
				return bounded(strconv.Itoa(i) + "=" + v)
			}
		}
		return ""
	case grammar.And:
		var b strings.Builder
		absent := true
		for i := range k.parts {
			v := k.parts[i].Resolve(value)
			absent = absent && v == ""
			b.WriteString(strconv.Itoa(len(v)))
			b.WriteByte(':')
			b.WriteString(v)
		}
		if absent {
			return ""
		}
		return bounded(b.String())
	}
	return bounded(value(k))
}

const (
	maxKey     = 128
	hashPrefix = "sha256:"
)

// bounded returns key, or its hash if it is long. A short key that looks like
// a hash is hashed too, so that no client can write the hash of another key.
func bounded(key string) string {
	if len(key) <= maxKey && !strings.HasPrefix(key, hashPrefix) {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return hashPrefix + hex.EncodeToString(sum[:])
}

// Missing returns an error for each value that k needs and keys do not have, and for each
// that must be an address and is none.
func (k *KeyResolver) Missing(keys map[string]string) (errs []error) {
	for i := range k.parts {
		errs = append(errs, k.parts[i].Missing(keys)...)
	}
	if k.kind == grammar.Global || len(k.parts) > 0 {
		return errs
	}
	v, ok := k.Lookup(keys)
	switch {
	case !ok:
		return []error{fmt.Errorf("limit: no key %q: write Keys: map[string]string{%[1]q: …}, with \"\" if there is none", k.label)}
	case k.kind == grammar.IP && v != "" && clientip.Key(v, 0) == "":
		return []error{fmt.Errorf("limit: key \"ip\": %q is not an address: write one such as 203.0.113.9", v)}
	}
	return nil
}

// Lookup returns the value of k in keys, which are named as in the text grammar. A header
// is found by a name that differs in case, unless two do.
func (k *KeyResolver) Lookup(keys map[string]string) (value string, ok bool) {
	if value, ok = keys[k.label]; ok || k.kind != grammar.Header {
		return value, ok
	}
	found := 0
	for label, v := range keys {
		if strings.EqualFold(label, k.label) {
			value = v
			found++
		}
	}
	return value, found == 1
}

// Given returns the value of k in keys, and whether there is a valid one: see Missing. IPv6
// addresses have as many bits as those of HTTP requests.
func (k *KeyResolver) Given(keys map[string]string, ipv6Prefix int) (value string, ok bool) {
	v, ok := k.Lookup(keys)
	if k.kind == grammar.IP {
		address := clientip.Key(v, ipv6Prefix)
		return address, ok && (address != "" || v == "")
	}
	return strings.TrimSpace(v), ok
}

// ValueID returns the id of a charge for a value that is counted, which is the same in all
// processes. Clients choose values, so it is a part of a cryptographic hash: finding two values
// with one id takes billions of tries, and gains a client one value. No value has the id 0.
func ValueID(value string) uint64 {
	if value == "" {
		return 0
	}
	sum := sha256.Sum256([]byte(value))
	return max(1, binary.BigEndian.Uint64(sum[:]))
}

// Missing returns an error that joins one for each key of the set that keys has no value for,
// or no address where one is needed.
func (s Set) Missing(keys map[string]string) error {
	var errs []error
	var seen []string
	for i := range s.rules {
		r := &s.rules[i]
		of := []KeyResolver{r.Key}
		if r.Quota().Algorithm == core.Distinct {
			of = append(of, r.Values())
		}
		for _, k := range of {
			if !slices.Contains(seen, k.String()) {
				seen = append(seen, k.String())
				errs = append(errs, k.Missing(keys)...)
			}
		}
	}
	return errors.Join(errs...)
}

// Unknown returns an error that joins one for each name in keys that no key of the set has, and
// for an address that is none: the rules would go by the HTTP request instead.
func (s Set) Unknown(keys map[string]string) error {
	var errs []error
	for name, value := range keys {
		switch k := s.named(name); {
		case k == nil:
			errs = append(errs, fmt.Errorf("limit: no rule has the key %q: write one that %s names, or leave it out", name, s))
		case k.kind == grammar.IP:
			errs = append(errs, k.Missing(map[string]string{k.label: value})...)
		case k.kind == grammar.Header:
			if _, once := k.Lookup(keys); !once {
				errs = append(errs, fmt.Errorf("limit: key %q: two names differ only in case: write one of them", k.label))
			}
		}
	}
	return errors.Join(errs...)
}

// named returns the resolver of the set that has a name, as Lookup finds it, or nil.
func (s *Set) named(name string) (found *KeyResolver) {
	for i := range s.rules {
		values := s.rules[i].Values()
		if found = cmp.Or(s.rules[i].Key.named(name), values.named(name)); found != nil {
			return found
		}
	}
	return nil
}

func (k *KeyResolver) named(name string) *KeyResolver {
	for i := range k.parts {
		if part := k.parts[i].named(name); part != nil {
			return part
		}
	}
	if k.kind == 0 || k.kind == grammar.Global || len(k.parts) > 0 {
		return nil
	}
	if k.label == name || k.kind == grammar.Header && strings.EqualFold(k.label, name) {
		return k
	}
	return nil
}
