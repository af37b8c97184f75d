package echov5limit

import (
	"errors"
	"fmt"

	"github.com/labstack/echo/v5"

	"github.com/routelimit/limit/adapter"
)

// A Router is what routes are mounted on: an [*echo.Echo] or [*echo.Group].
type Router interface {
	Add(method, path string, handler echo.HandlerFunc, middleware ...echo.MiddlewareFunc) echo.RouteInfo
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
	_, whole := router.(*echo.Echo) // a group has a prefix, which Echo does not export
	for i, route := range routes {
		if route.Limited {
			pattern := ""
			if whole {
				pattern = route.Path
			}
			m, err := l.middleware(pattern, route.Rules)
			errs = append(errs, route.FieldError(err))
			limits[i] = []echo.MiddlewareFunc{m}
		}
		switch h := route.Handler.(type) {
		case nil: // an error of adapter.Routes
		case echo.HandlerFunc:
			handlers[i] = h
		case func(*echo.Context) error:
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
