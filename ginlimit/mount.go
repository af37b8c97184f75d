package ginlimit

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/routelimit/limit/adapter"
)

// Mount registers the handlers in the fields of a struct, by their tags:
//
//	type API struct {
//		Update gin.HandlerFunc `route:"POST /update" limit:"5/2s per ip; 1000/1m global"`
//	}
//
// The paths are Gin's. See [limit.Limiter.Mount] for the tags. If anything is wrong
// with the struct, Mount returns an error that lists everything that is wrong, and
// registers nothing. It panics if Gin rejects a route, as router.Handle does.
func (l *Limiter) Mount(router gin.IRouter, api any) error {
	routes, err := adapter.Routes(api)
	errs := []error{err}
	chains := make([]gin.HandlersChain, len(routes))
	prefix := ""
	if group, ok := router.(interface{ BasePath() string }); ok {
		prefix = group.BasePath()
	}
	for i, route := range routes {
		if route.Limited {
			h, err := l.handler(strings.TrimSuffix(prefix, "/")+route.Path, route.Rules)
			errs = append(errs, route.FieldError(err))
			chains[i] = append(chains[i], h)
		}
		switch h := route.Handler.(type) {
		case nil: // an error of adapter.Routes
		case gin.HandlerFunc:
			chains[i] = append(chains[i], h)
		case func(*gin.Context):
			chains[i] = append(chains[i], h)
		default:
			errs = append(errs, route.FieldError(fmt.Errorf("limit: %T is not a handler: write a gin.HandlerFunc", h)))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for i, route := range routes {
		router.Handle(route.Method, route.Path, chains[i]...)
	}
	return nil
}
