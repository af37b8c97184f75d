package replay

import (
	"net/http"
	"strings"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/grammar"
)

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
	switch k.Kind {
	case grammar.Global:
		return "(all requests)"
	case grammar.And:
		parts := make([]string, len(k.Parts))
		for i := range k.Parts {
			parts[i] = keyOf(&k.Parts[i], e)
		}
		return strings.Join(parts, ", ")
	case grammar.Or:
		for i := range k.Parts {
			if v := keyOf(&k.Parts[i], e); v != noKey {
				return v
			}
		}
		return noKey
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

// has reports whether a request has a key.
func has(k *grammar.Key, e *event) bool {
	switch k.Kind {
	case grammar.Global:
		return true
	case grammar.And, grammar.Or:
		for i := range k.Parts {
			if has(&k.Parts[i], e) {
				return true
			}
		}
		return false
	}
	return valueOf(k, e) != ""
}

// valueOf returns the value of a key without parts, or "" if there is none.
func valueOf(k *grammar.Key, e *event) (v string) {
	switch k.Kind {
	case grammar.IP:
		v = e.client.key
	case grammar.User:
		v = e.user.name
	case grammar.Header:
		v = e.fields["header "+http.CanonicalHeaderKey(k.Name)]
	case grammar.Cookie:
		v = e.fields["cookie "+k.Name]
	case grammar.Query:
		if e.place.url != nil {
			u := *e.place.url
			u.RawQuery = e.query
			v = u.Query().Get(k.Name)
		}
	case grammar.Path:
		for i := range e.place.matched {
			if v == "" {
				v = e.place.matched[i].values[k.Name]
			}
		}
	default:
		v = e.client.key // of a function
	}
	return strings.TrimSpace(v)
}

// noKey stands for the quota that all requests without a key share.
const noKey = "(none)"

// needs says which parts of a request policies look at, so that others need not be kept.
type needs struct{ query, headers, fields bool }

func needsOf(o *Options) (n needs) {
	program := o.Exempt != nil || o.Bar != nil || o.CompareExempt != nil || o.CompareBar != nil
	n = needs{program, program, program}
	for _, p := range append(o.Policies[:len(o.Policies):len(o.Policies)], o.Compare...) {
		for _, r := range p.Rules.Rules() {
			text := r.Key.String()
			if d, ok := r.Algorithm.(limit.Distinct); ok {
				text += " " + d.Values.String()
			}
			if r.Cost != (limit.Cost{}) || syntaxOf(r.Key).Kind == 0 {
				n = needs{true, true, true} // a function may look at anything
			}
			n.query = n.query || strings.Contains(text, "query ")
			n.fields = n.fields || strings.Contains(text, "header ") || strings.Contains(text, "cookie ")
		}
	}
	return n
}

// request returns the request of an event. It is used again for the next one.
func (n needs) request(r *http.Request, e *event) *http.Request {
	p := e.place
	r.Method, r.Host, r.RemoteAddr = p.method, p.host, e.client.address
	r.URL = p.url
	if n.query && e.query != "" {
		u := *p.url
		u.RawQuery = e.query
		r.URL = &u
	}
	if n.headers || n.fields {
		clear(r.Header)
		if n.headers && e.agent.text != "" {
			r.Header.Set("User-Agent", e.agent.text)
		}
		for field, value := range e.fields {
			if value == "" {
				continue
			}
			kind, name, _ := strings.Cut(field, " ")
			if kind == "header" {
				r.Header.Set(name, value)
			} else {
				r.AddCookie(&http.Cookie{Name: name, Value: value, Quoted: strings.ContainsAny(value, " ,")})
			}
		}
	}
	return r
}
