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
	Bind, Serve, Decide, AnswerByOptions, Functions any // of package adapter

	Engine, Proxies, Policies, Declared, Peek, Account, Reset, Key any // of package operate
	Observe, Compared, Change, Lift, Check, Validate               any

	Document func(status int, err error) []byte
)

// A Framework is a request as the flow of package limit sees it, whatever the adapter.
type Framework interface {
	Route() (method, pattern string) // either may be ""
	PathValue(r *http.Request, name string) string
	Caller(p Part) (answer string, asked bool) // limit.Options is asked if it is not
	RPC() bool                                 // whether it is a call of a procedure, which writes its response itself
	Next(r *http.Request) (status int, err error)
	Record() *response.Recorder // a new one around the writer of the framework, or nil

	// Answer answers a request that is refused or could not be decided, or leaves it to the problem
	// details document.
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
