// Package adapter is for packages that connect a web framework to package limit,
// such as ginlimit and echolimit.
package adapter

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/tags"
)

// Mount registers the handlers in the fields of a struct, by their tags, as
// [limit.Limiter.Mount] does and documents. Handler and Middleware are types of the
// framework; a field may have any type that converts to Handler.
//
// Bind returns the middleware for the rules of a path, and the error of
// [Adapter.Bind]. Add registers a route, with the middleware unless the route
// has no limits. If anything is wrong with the struct, Mount returns an error that
// lists everything that is wrong, and does not call add.
func Mount[Handler, Middleware any](limiter *limit.Limiter, api any, bind func(path string, rules limit.RuleSet) (Middleware, error),
	add func(method, path string, h Handler, m ...Middleware)) error {
	routes, err := routesOf(limiter, api)
	errs := []error{err}
	handlers := make([]Handler, len(routes))
	limits := make([][]Middleware, len(routes))
	for i, route := range routes {
		if route.Limited {
			m, err := bind(route.Path, route.Rules)
			errs = append(errs, tags.Prefix(route.Field, err)...)
			limits[i] = []Middleware{m}
		}
		if route.Handler == nil {
			continue // an error of routesOf
		}
		h, want := reflect.ValueOf(route.Handler), reflect.TypeFor[Handler]()
		if !h.CanConvert(want) {
			errs = append(errs, tags.Prefix(route.Field, fmt.Errorf("limit: %T is not a handler: write the type %v", route.Handler, want))...)
			continue
		}
		handlers[i] = h.Convert(want).Interface().(Handler)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for i, route := range routes {
		add(route.Method, route.Path, handlers[i], limits[i]...)
	}
	return nil
}

// A route is a field of a struct whose tags declare a route.
type route struct {
	Field        string        // the struct and the field, such as "API.Update"
	Method, Path string        // "POST" and "/update", as the router writes it
	Limited      bool          // false for limit:"-", a route without limits
	Rules        limit.RuleSet // if Limited
	Handler      any           // the value of the field
}

// routesOf returns the routes in the tags of a struct, or of the struct that a
// pointer points to, in the order of its fields.
//
// If anything is wrong with the struct, the error joins one for each thing, and
// routesOf returns the routes as well, so that Mount can check the rest. Limited is
// false if the rules are invalid, and Handler is nil if there is none.
func routesOf(limiter *limit.Limiter, api any) ([]route, error) {
	fields, err := tags.Read(api)
	if err != nil {
		return nil, err
	}
	routes := make([]route, len(fields))
	for i, f := range fields {
		r := &routes[i]
		*r = route{Field: f.Name, Method: f.Method, Path: f.Path, Handler: f.Handler}
		if f.Limited {
			r.Rules, r.Limited = f.Rules(functions(limiter))
		}
	}
	return routes, tags.Join(fields)
}
