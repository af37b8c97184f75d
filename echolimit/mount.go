package echolimit

import (
	"errors"
	"fmt"

	"github.com/labstack/echo/v4"

	"github.com/routelimit/limit"
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
// The paths are Echo's. If anything is wrong with the struct, Mount returns
// everything that is, and registers nothing.
func (l *Limiter) Mount(router Router, api any) error {
	routes, err := limit.Routes(api)
	if err != nil {
		return err
	}
	var errs []error
	handlers := make([]echo.HandlerFunc, len(routes))
	limits := make([][]echo.MiddlewareFunc, len(routes))
	for i, route := range routes {
		if route.Limited {
			call := l.call(nil, nil)
			call.Pattern = route.Path
			policy, err := l.limiter.Bind(route.Rules, call)
			if err != nil {
				errs = append(errs, fmt.Errorf("field %s: %w", route.Field, err))
			}
			limits[i] = []echo.MiddlewareFunc{l.middleware(policy)}
		}
		switch h := route.Handler.(type) {
		case echo.HandlerFunc:
			handlers[i] = h
		case func(echo.Context) error:
			handlers[i] = h
		default:
			errs = append(errs, fmt.Errorf("limit: field %s: %T is no handler: write an echo.HandlerFunc", route.Field, h))
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
