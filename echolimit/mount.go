package echolimit

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/routelimit/limit/adapter"
)

// A Router is what routes are mounted on: an [*echo.Echo] or [*echo.Group].
type Router interface {
	Add(method, path string, handler echo.HandlerFunc, middleware ...echo.MiddlewareFunc) *echo.Route
}

// Mount registers the handlers in the fields of a struct, by their tags:
//
//	type API struct {
//		Update echo.HandlerFunc `route:"POST /update" limit:"5/2s per ip; 1000/1m global"`
//	}
//
// The paths are Echo's. See [limit.Limiter.Mount] for the tags. If anything is
// wrong with the struct, Mount returns an error that lists everything that is wrong,
// and registers nothing.
func (l *Limiter) Mount(router Router, api any) error {
	routes, err := adapter.Routes(api)
	errs := []error{err}
	handlers := make([]echo.HandlerFunc, len(routes))
	limits := make([][]echo.MiddlewareFunc, len(routes))
	prefix, known := prefixOf(router)
	for i, route := range routes {
		if route.Limited {
			mw, err := l.middleware(route.Rules)
			errs = append(errs, route.FieldError(err))
			limits[i] = []echo.MiddlewareFunc{mw}
		}
		if known {
			path := prefix + route.Path
			errs = append(errs, route.CheckPathValues(path, wildcards(path)))
		}
		switch h := route.Handler.(type) {
		case nil: // an error of adapter.Routes
		case echo.HandlerFunc:
			handlers[i] = h
		case func(echo.Context) error:
			handlers[i] = h
		default:
			errs = append(errs, route.FieldError(fmt.Errorf("limit: %T is not a handler: write an echo.HandlerFunc", h)))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for i, route := range routes {
		router.Add(route.Method, route.Path, handlers[i], limits[i]...)
	}
	return nil
}

// prefixOf returns the prefix of the paths on a router, and whether it is known.
// Echo does not export the prefix of a group.
func prefixOf(router Router) (prefix string, known bool) {
	switch r := router.(type) {
	case *echo.Echo:
		return "", true
	case *echo.Group:
		field := reflect.ValueOf(r).Elem().FieldByName("prefix")
		return field.String(), field.Kind() == reflect.String
	}
	return "", false
}

// wildcards returns the names of the values in a path: "id" and "*" in
// "/users/:id/*".
func wildcards(path string) (names []string) {
	for segment := range strings.SplitSeq(path, "/") {
		switch i := strings.IndexAny(segment, ":*"); {
		case i < 0:
		case segment[i] == '*':
			names = append(names, "*")
		default:
			names = append(names, segment[i+1:])
		}
	}
	return names
}
