package ginlimit

import (
	"errors"
	"fmt"

	"github.com/gin-gonic/gin"

	"github.com/routelimit/limit"
)

// Mount registers the handlers in the fields of a struct, by their tags:
//
//	type API struct {
//		Update gin.HandlerFunc `route:"POST /update" limit:"5/2s per ip; 1000/1m global"`
//	}
//
// The paths are Gin's. If anything is wrong with the struct, Mount returns
// everything that is, and registers nothing. Routes that Gin itself rejects
// (the same one twice) panic, as in router.Handle.
func (l *Limiter) Mount(router gin.IRouter, api any) error {
	routes, err := limit.Routes(api)
	if err != nil {
		return err
	}
	var errs []error
	chains := make([]gin.HandlersChain, len(routes))
	for i, route := range routes {
		if route.Limited {
			call := l.call(nil)
			call.Pattern = route.Path
			policy, err := l.limiter.Bind(route.Rules, call)
			if err != nil {
				errs = append(errs, fmt.Errorf("field %s: %w", route.Field, err))
			}
			chains[i] = append(chains[i], l.handler(policy))
		}
		switch h := route.Handler.(type) {
		case gin.HandlerFunc:
			chains[i] = append(chains[i], h)
		case func(*gin.Context):
			chains[i] = append(chains[i], h)
		default:
			errs = append(errs, fmt.Errorf("limit: field %s: %T is no handler: write a gin.HandlerFunc", route.Field, h))
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
