// Package adapter is for packages that connect a web framework to package limit,
// such as ginlimit and echolimit.
package adapter

import (
	"errors"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/tags"
)

// A Route is a field of a struct whose tags declare a route. See [Routes].
type Route struct {
	Field        string        // the struct and the field, such as "API.Update"
	Method, Path string        // "POST" and "/update", as the router writes it
	Limited      bool          // false for limit:"-", a route without limits
	Rules        limit.RuleSet // if Limited
	Handler      any           // the value of the field
}

// Routes returns the routes in the tags of a struct, or of the struct that a
// pointer points to, in the order of its fields. It is for functions such as
// [limit.Limiter.Mount], which documents the tags.
//
// If anything is wrong with the struct, the error joins one for each thing, and
// Routes returns the routes as well, so that the caller can check the rest and
// report everything at once: the types of the handlers, and what
// [limit.Adapter.Bind] returns for the rules. Limited is false if the rules are
// invalid, and Handler is nil if there is none. After any error, the caller
// registers nothing.
func Routes(api any) ([]Route, error) {
	fields, err := tags.Read(api)
	if err != nil {
		return nil, err
	}
	routes := make([]Route, len(fields))
	for i, f := range fields {
		r := &routes[i]
		*r = Route{Field: f.Name, Method: f.Method, Path: f.Path, Handler: f.Handler}
		if !f.Limited {
			continue
		}
		if f.Named {
			r.Rules = limit.Named(f.Policy)
		}
		if err := r.Rules.UnmarshalText([]byte(f.Limit)); err != nil {
			f.Add(err)
			r.Rules = limit.RuleSet{}
			continue
		}
		r.Limited = true
	}
	return routes, tags.Join(fields)
}

// FieldError returns err with the name of the field. If err joins several errors,
// each gets the name. It returns nil if err is nil.
func (r Route) FieldError(err error) error {
	return errors.Join(tags.Prefix(r.Field, err)...)
}
