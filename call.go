package limit

import (
	"net/http"
	"net/url"
	"strings"
)

// A Call is a request as an adapter hands it to [Policy.Decide].
type Call struct {
	Request *http.Request

	// Method and Pattern name the route: "POST" and "/update/:id". An empty
	// Pattern means that no route matched. Method is empty if the pattern
	// says it, or if it does not matter.
	Method, Pattern string

	// PathValue returns a part of the path. Nil means Request.PathValue.
	PathValue func(name string) string

	// User returns the user. Nil means [Options].User.
	User func() string
}

// httpSource takes keys from a request.
type httpSource struct {
	call    *Call
	options *Options
}

func (s httpSource) value(k *KeyResolver) string {
	r := s.call.Request
	var v string
	switch k.kind {
	case byIP:
		return s.options.Proxies.key(r)
	case byUser:
		if s.call.User != nil {
			v = s.call.User()
		} else if s.options.User != nil {
			v = s.options.User(r)
		}
	case byHeader:
		v = r.Header.Get(k.name)
	case byCookie:
		if c, err := r.Cookie(k.name); err == nil {
			v = c.Value
		}
	case byQuery:
		v = queryValue(r.URL, k.name)
	case byPath:
		if s.call.PathValue != nil {
			v = s.call.PathValue(k.name)
		} else {
			v = r.PathValue(k.name)
		}
	case byFunc:
		v = k.fn(r)
	}
	return strings.TrimSpace(v)
}

// queryValue returns the first value of a query parameter.
func queryValue(u *url.URL, name string) string {
	if u == nil || u.RawQuery == "" {
		return ""
	}
	return u.Query().Get(name)
}
