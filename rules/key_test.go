package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/internal/grammar"
)

func TestBounded(t *testing.T) {
	for _, key := range []string{"", "a", long(128), "SHA256:", "sha256", "x sha256:"} {
		assert.Equal(t, key, bounded(key))
	}
	for _, key := range []string{long(129), long(1 << 20), "sha256:", hashed(long(129)), "sha256:x"} {
		assert.Equal(t, hashed(key), bounded(key), "%.20q", key)
		assert.LessOrEqual(t, len(bounded(key)), maxKey)
	}
}

func TestAndIsInjective(t *testing.T) {
	pair := ByHeader("A").And(ByHeader("B"))
	triple := nest(grammar.And, pair, ByHeader("C"))
	seen := make(map[string][3]string)
	values := []string{"", "a", "b", "a:b", "b:c", "1:a", "0:", "1:a1:b", "sha256:a", hashed("x"), long(129)}
	for _, a := range values {
		for _, b := range values {
			for _, c := range values {
				keys := map[string]string{"header A": a, "header B": b, "header C": c}
				key := triple.Resolve(valuesIn(keys))
				require.NotContains(t, seen, key, "%q %q %q and %q", a, b, c, seen[key])
				seen[key] = [3]string{a, b, c}
			}
		}
	}
}

// FuzzKeyInjective says that two requests that differ in a value never share a
// quota by it, whatever clients write.
func FuzzKeyInjective(f *testing.F) {
	f.Add("a", "b:c", "x", "a:b", "c", "x")
	f.Add("", "a", "", "a", "", "")
	f.Add("0=a", "", "", "", "a", "")
	f.Add("1:a1:b", "", "", "a", "b", "")
	f.Add(hashed("a"), "", "", "a", "", "")
	f.Add(long(200), "x", "", hashed(long(200)), "x", "")
	f.Fuzz(func(t *testing.T, a1, b1, c1, a2, b2, c2 string) {
		a, b, c := ByHeader("A"), ByQuery("b"), ByPathValue("c")
		from := func(values ...string) func(*KeyResolver) string {
			return valuesIn(map[string]string{a.label: values[0], b.label: values[1], c.label: values[2]})
		}
		one, two := from(a1, b1, c1), from(a2, b2, c2)
		same := func(keys ...KeyResolver) bool {
			for _, k := range keys {
				if one(&k) != two(&k) {
					return false
				}
			}
			return true
		}
		first := func(from func(*KeyResolver) string) [2]string {
			for _, k := range []KeyResolver{a, b, c} {
				if v := from(&k); v != "" {
					return [2]string{k.label, v}
				}
			}
			return [2]string{}
		}
		for _, test := range []struct {
			key  KeyResolver
			same bool
		}{
			{a, same(a)},
			{a.And(b), same(a, b)},
			{a.And(b).And(c), same(a, b, c)},
			{nest(grammar.And, a.And(b), c), same(a, b, c)},
			{nest(grammar.And, a, b.And(c)), same(a, b, c)},
			{a.Or(b).Or(c), first(one) == first(two)},
			{nest(grammar.Or, a.Or(b), c), first(one) == first(two)},
			{a.Or(b).Or(c).And(a), first(one) == first(two) && same(a)},
		} {
			x, y := test.key.Resolve(one), test.key.Resolve(two)
			if test.same != (x == y) || len(x) > maxKey {
				t.Fatalf("%s: %q and %q", test.key, x, y)
			}
		}
	})
}

// valuesIn returns a function for Resolve.
func valuesIn(keys map[string]string) func(*KeyResolver) string {
	return func(k *KeyResolver) string {
		v, _ := k.Lookup(keys)
		return strings.TrimSpace(v)
	}
}

func hashed(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// TestLocations checks that no location sends clients to another place than it seems
// to, and that none ends the header.
func TestLocations(t *testing.T) {
	for _, location := range []string{"/", "/busy", "/busy?a=b&c=//d#e", "/a//b", "https://example.com", "http://example.com:8080/x",
		"HTTPS://example.com/", "http://[::1]/"} {
		assert.Empty(t, locationProblem(location), location)
	}
	for _, location := range []string{"//evil.example", "/\\evil.example", "\\\\evil.example", "/a\r\nSet-Cookie: a=b", "/a\nb", "/a\x00", "/a b",
		"/é", "/\t/evil.example", "busy", "?a", "", "javascript:alert(1)", "data:text/html,x", "ftp://example.com/", "https:///x", "https:busy",
		"https://user:secret@example.com/", "http://", "/%zz", "mailto:a@example.com", "https://:80/"} {
		assert.NotEmpty(t, locationProblem(location), "%q", location)
	}
}
