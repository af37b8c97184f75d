package echov5limit

import (
	"github.com/labstack/echo/v5"

	"github.com/routelimit/limit"
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
	_, whole := router.(*echo.Echo) // a group has a prefix, which Echo does not export
	return adapter.Mount(l.limiter, api, func(path string, rules limit.RuleSet) (echo.MiddlewareFunc, error) {
		if !whole {
			path = ""
		}
		return l.middleware(path, rules)
	}, func(method, path string, h echo.HandlerFunc, limits ...echo.MiddlewareFunc) {
		router.Add(method, path, h, limits...)
	})
}
