// Package door gives packages adapter and operate access to what package limit does not
// export, since its users do not need it.
package door

import (
	"net/http"

	"github.com/routelimit/limit/internal/response"
)

// The functions behind the door. Package limit sets them before the packages that import
// it are initialized. Those name the types of package limit, which this package cannot:
// they assert each function to its type once, when the program starts.
var (
	// Of package adapter:
	Bind            any // func(*limit.Limiter, limit.RuleSet, *Place) (*limit.Policy, error)
	Serve           any // func(*limit.Policy, http.ResponseWriter, *http.Request, Framework, *limit.Request) error
	Decide          any // func(*limit.Policy, *http.Request, Framework, int64) (limit.Decision, error)
	AnswerByOptions any // func(*limit.Policy, http.ResponseWriter, *http.Request, int, error) (answered bool)

	Functions any // func(*limit.Limiter) rules.Functions

	Document func(status int, err error) []byte

	// Of package operate:
	Engine   any // func(*limit.Limiter) *engine.Engine
	Proxies  any // func(*limit.Limiter) limit.Proxies
	Policies any // func(*limit.Limiter) iter.Seq2[string, limit.RuleSet]
	Declared any // func(*limit.Limiter) []string
	Peek     any // func(_ *limit.Limiter, _ context.Context, policy, rule, key, plan string) (limit.RuleDecision, error)
	Account  any // func(_ *limit.Limiter, _ context.Context, policy, rule, key, plan string) (core.Account, error)
	Reset    any // func(_ *limit.Limiter, _ context.Context, policy, rule, key string) error
	Key      any // func(_ *limit.Policy, rule string, keys map[string]string) (string, error)
	Observe  any // func(*limit.Limiter, func(*http.Request, limit.Decision, error)) (stop func())
	Compared any // func(limit.Decision) [][2]limit.RuleDecision
	Change   any // func(*limit.Limiter, ...limit.RuleSet) error
	Lift     any // func(*limit.Limiter) error
	Check    any // func(*limit.Limiter, context.Context) error
	Validate any // func(*limit.Limiter, limit.RuleSet) error
)

// A Framework is a request as the flow of package limit sees it, whatever the adapter.
type Framework interface {
	// Route returns the method and the pattern of the route, either of which may be "".
	Route() (method, pattern string)

	// PathValue returns a part of the path.
	PathValue(r *http.Request, name string) string

	// Caller returns a part of the caller. If it is not asked, limit.Options is.
	Caller(p Part) (answer string, asked bool)

	// RPC reports whether the request is a call of a procedure, which writes its response
	// itself.
	RPC() bool

	// Next runs the handler with a request.
	Next(r *http.Request) (status int, err error)

	// Record returns a new Recorder around the writer of the framework, or nil.
	Record() *response.Recorder

	// Answer answers a request that is refused or could not be decided, or leaves it to
	// the problem details document.
	Answer(w http.ResponseWriter, r *http.Request, status int, err error) (answered bool, _ error)
}

// A Part is one of the functions of a limit.Caller.
type Part uint8

// The parts, and their number.
const (
	User Part = iota
	Plan
	Class
	Parts
)

// A Place is where rules are declared. The zero Place is a route of net/http.
type Place struct {
	Pattern string      // "" if it is not known yet
	RPC     bool        // before every procedure of a server
	Caller  [Parts]bool // for each part of a caller, whether the adapter has a function
}

// KnownMethod maps the methods that clients invent to one.
func KnownMethod(method string) string {
	switch method {
	case "", http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
		http.MethodDelete, http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return method
	}
	return "OTHER"
}
