package ginlimit

import (
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/routelimit/limit"
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
	prefix := ""
	if group, ok := router.(interface{ BasePath() string }); ok {
		prefix = strings.TrimSuffix(group.BasePath(), "/")
	}
	return adapter.Mount(l.limiter, api, func(path string, rules limit.RuleSet) (gin.HandlerFunc, error) {
		return l.handler(prefix+path, rules)
	}, func(method, path string, h gin.HandlerFunc, limits ...gin.HandlerFunc) {
		router.Handle(method, path, append(limits, h)...)
	})
}
