package replay

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/grammar"
)

// noKey stands for the quota that all requests without a key share.
const noKey = "(none)"

// syntaxOf returns a key as the text grammar has it. A function is the zero Key.
func syntaxOf(k limit.KeyResolver) grammar.Key {
	key, err := grammar.ParseKey(k.String())
	if err != nil || len(key.Names(grammar.Func)) > 0 {
		return grammar.Key{}
	}
	return key
}

// keyOf returns the key of a request as results show it: "203.0.113.9", "alice", or
// "203.0.113.9, alice" for a joined key.
func keyOf(k *grammar.Key, e *event) string {
	parts := make([]string, len(k.Parts))
	for i := range k.Parts {
		parts[i] = keyOf(&k.Parts[i], e)
	}
	switch k.Kind {
	case grammar.Global:
		return "(all requests)"
	case grammar.And:
		return strings.Join(parts, ", ")
	case grammar.Or:
		parts = append(slices.DeleteFunc(parts, func(part string) bool { return part == noKey }), noKey)
		return parts[0]
	}
	v := valueOf(k, e)
	switch {
	case v == "":
		return noKey
	case len(v) > maxText:
		return v[:maxText] + "…"
	}
	return strings.Clone(v)
}

// has reports whether a request has a key, or a part of it.
func has(k *grammar.Key, e *event) bool {
	if len(k.Parts) == 0 {
		return k.Kind == grammar.Global || valueOf(k, e) != ""
	}
	return slices.ContainsFunc(k.Parts, func(part grammar.Key) bool { return has(&part, e) })
}

// valueOf returns the value of a key without parts, or "" if there is none.
func valueOf(k *grammar.Key, e *event) (v string) {
	switch k.Kind {
	case grammar.User:
		v = e.user
	case grammar.Header:
		v = e.fields["header "+http.CanonicalHeaderKey(k.Name)]
	case grammar.Cookie:
		v = e.fields["cookie "+k.Name]
	case grammar.Query:
		u := *e.place.url
		u.RawQuery = e.query
		v = u.Query().Get(k.Name)
	case grammar.Path:
		for _, m := range slices.Concat(e.place.matched[:]...) {
			v = cmp.Or(v, m.values[k.Name])
		}
	default: // of a function, too
		v = e.client.key
	}
	return strings.TrimSpace(v)
}
