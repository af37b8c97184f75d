package limit

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/routelimit/limit/internal/grammar"
)

// A KeyResolver turns a request into a key: requests with the same key share a
// quota. Use [ByIP], [ByUser], [Everyone], the functions that begin with By,
// [FirstOf] and [Joined]. The zero KeyResolver is invalid.
//
// All requests without a key (no such header, no user) share one quota: a missing
// key never means no limit. Where that is too strict, add another resolver with
// [FirstOf]. White space counts as no value.
//
// Keys are compared byte for byte. A key longer than 128 bytes is replaced by its
// SHA-256.
type KeyResolver struct {
	kind  grammar.Kind
	label string                      // in the text grammar
	name  string                      // of the header, cookie, …
	parts []KeyResolver               // of FirstOf and Joined
	fn    *func(*http.Request) string // of By: the address tells functions apart
}

// The kinds of resolvers.
const (
	everyone = grammar.Global
	byIP     = grammar.IP
	byUser   = grammar.User
	byHeader = grammar.Header
	byCookie = grammar.Cookie
	byQuery  = grammar.Query
	byPath   = grammar.Path
	byFunc   = grammar.Func
	firstOf  = grammar.Or
	joined   = grammar.And
)

var (
	// Everyone resolves every request to one key.
	Everyone = KeyResolver{kind: everyone, label: "global"}

	// ByIP resolves the address of the client: an IPv4 address, or the /64 of an
	// IPv6 address. It is the peer of the connection unless [Options].Proxies names
	// proxies. Peers without an address (Unix sockets) share one quota.
	ByIP = KeyResolver{kind: byIP, label: "ip"}

	// ByUser resolves the user, by the User function of the adapter or
	// [Options].Caller.
	ByUser = KeyResolver{kind: byUser, label: "user"}
)

// ByHeader resolves the first value of a header, such as an API key. Clients can
// write any value, unless something before the limiter has checked it.
func ByHeader(name string) KeyResolver {
	return labeled(KeyResolver{kind: byHeader, name: http.CanonicalHeaderKey(name)})
}

// ByCookie resolves the value of a cookie.
func ByCookie(name string) KeyResolver { return labeled(KeyResolver{kind: byCookie, name: name}) }

// ByQuery resolves the first value of a query parameter.
func ByQuery(name string) KeyResolver { return labeled(KeyResolver{kind: byQuery, name: name}) }

// ByPathValue resolves a part of the path: "id" for "/users/:id" on Gin and Echo,
// and for "/users/{id}" on a ServeMux. The route must have it: see [Adapter.Bind].
func ByPathValue(name string) KeyResolver { return labeled(KeyResolver{kind: byPath, name: name}) }

// By resolves what fn returns; "" means that the request has no such key. The
// function must not read the body. For a value that other middleware has found, read
// it from the request's context. The name appears in the names of rules. It is one
// word, and none of the words of the text grammar, which has no functions.
//
// Each call of By makes another resolver, even with the same name and function: Go
// cannot tell whether two functions do the same. Two sets of one name ([Named]) that
// took the key for the same could limit clients by a key that they choose. Keep the
// resolver in a variable, and use that in both sets.
func By(name string, fn func(*http.Request) string) KeyResolver {
	return KeyResolver{kind: byFunc, label: name, name: name, fn: &fn}
}

// FirstOf resolves the first of several keys that the request has, such as
// FirstOf(ByUser, ByIP). Equal values of different resolvers are different keys.
func FirstOf(keys ...KeyResolver) KeyResolver {
	return labeled(KeyResolver{kind: firstOf, parts: slices.Clone(keys)})
}

// Joined resolves several keys together: each combination of values has its own
// quota. An absent value counts as a value, but a request without any of them has
// no key.
func Joined(keys ...KeyResolver) KeyResolver {
	return labeled(KeyResolver{kind: joined, parts: slices.Clone(keys)})
}

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
	case byHeader, byCookie:
		if k.name == "Host" && k.kind == byHeader {
			return []string{"key \"header Host\": net/http keeps it elsewhere: " +
				"write limit.By with a function that returns Request.Host"}
		}
		if !validToken(k.name) {
			return []string{fmt.Sprintf("key %q: write a name such as X-API-Key, "+
				"without spaces and the signs that HTTP forbids in names", k)}
		}
	case byQuery, byPath:
		if !grammar.IsWord(k.name) {
			return []string{fmt.Sprintf("key %q: write a name without spaces, semicolons and parentheses", k)}
		}
	case byFunc:
		if *k.fn == nil || !grammar.IsWord(k.name) || slices.Contains(grammar.KeyWords(), k.name) {
			return []string{fmt.Sprintf("limit.By(%q, …): write a function that is not nil, and a name without "+
				"spaces, semicolons and parentheses that is not %s", k.name, strings.Join(grammar.KeyWords(), ", "))}
		}
	case firstOf, joined:
		if depth > grammar.MaxNesting {
			return []string{fmt.Sprintf("a key nested more than %d deep: write a function with limit.By", grammar.MaxNesting)}
		}
		var list []string
		if len(k.parts) < 2 {
			list = append(list, fmt.Sprintf("key %q: write at least two resolvers in FirstOf or Joined", k))
		}
		for _, part := range k.parts {
			if part.kind == everyone {
				list = append(list, fmt.Sprintf("key %q: limit.Everyone has no value: leave it out", k))
				continue
			}
			list = append(list, part.problems(depth+1)...)
		}
		return list
	}
	return nil
}

// validToken reports whether s can be the name of a header or a cookie.
func validToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool {
		return c <= ' ' || c >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, c)
	})
}

// uses reports whether k contains a resolver of the given kind.
func (k KeyResolver) uses(kind grammar.Kind) bool {
	if k.kind == kind {
		return true
	}
	for _, part := range k.parts {
		if part.uses(kind) {
			return true
		}
	}
	return false
}

// pathValues returns the names of the path values that k needs.
func (k *KeyResolver) pathValues() (names []string) {
	if k.kind == byPath {
		return []string{k.name}
	}
	for i := range k.parts {
		names = append(names, k.parts[i].pathValues()...)
	}
	return names
}

// resolve returns the key of a request: "" if it has none, and otherwise a
// string that no other combination of values resolves to. The function returns the
// value of a resolver that has no parts.
func (k *KeyResolver) resolve(value func(*KeyResolver) string) string {
	switch k.kind {
	case everyone:
		return ""
	case firstOf:
		for i := range k.parts {
			if v := k.parts[i].resolve(value); v != "" {
				return bounded(strconv.Itoa(i) + "=" + v)
			}
		}
		return ""
	case joined:
		var b strings.Builder
		absent := true
		for i := range k.parts {
			v := k.parts[i].resolve(value)
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
