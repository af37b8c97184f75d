package echov5limit

import "github.com/labstack/echo/v5"

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
	_, whole := router.(*echo.Echo)
	return l.flow().Mount(api, whole, func(method, path string, h echo.HandlerFunc, limits ...echo.MiddlewareFunc) {
		router.Add(method, path, h, limits...)
	})
}
