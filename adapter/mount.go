// Package adapter is for packages that connect a web framework to package limit,
// such as ginlimit and echolimit.
package adapter

import (
	"fmt"
	"reflect"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/tags"
)

// Mount registers the handlers in the fields of a struct, by their tags, as [limit.Limiter.Mount]
// does and documents. Handler and Middleware are types of the framework; a field may have any type
// that converts to Handler.
//
// Bind returns the middleware for the rules of a path, and the error of [Adapter.Bind]. Add
// registers a route, with the middleware unless the route has no limits. If anything is wrong with
// the struct, Mount returns an error that lists all of it, and does not call add.
func Mount[Handler, Middleware any](limiter *limit.Limiter, api any, bind func(path string, rules limit.RuleSet) (Middleware, error),
	add func(method, path string, h Handler, m ...Middleware)) error {
	fields, err := tags.Read(api)
	if err != nil {
		return err
	}
	handlers := make([]Handler, len(fields))
	limits := make([][]Middleware, len(fields))
	for i, f := range fields {
		if f.Limited {
			if rules, ok := f.Rules(functions(limiter)); ok {
				m, err := bind(f.Path, rules)
				f.Add(err)
				limits[i] = []Middleware{m}
			}
		}
		if f.Handler == nil {
			continue // an error of Read
		}
		h, want := reflect.ValueOf(f.Handler), reflect.TypeFor[Handler]()
		if !h.CanConvert(want) {
			f.Add(fmt.Errorf("limit: %T is not a handler: write the type %v", f.Handler, want))
			continue
		}
		handlers[i] = h.Convert(want).Interface().(Handler)
	}
	if err := tags.Join(fields); err != nil {
		return err
	}
	for i, f := range fields {
		add(f.Method, f.Path, handlers[i], limits[i]...)
	}
	return nil
}
