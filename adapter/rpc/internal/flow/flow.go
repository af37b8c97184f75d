// Package flow is what the adapters for gRPC and Connect share: how a call is seen as
// a request, and the errors of calls that are not admitted.
package flow

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/adapter"
	"github.com/routelimit/limit/core"
)

// A Call is a unary call or a stream.
type Call struct {
	Context context.Context
	Method  string      // such as "/acme.v1.Books/Get"
	Peer    string      // its address, or ""
	Unknown bool        // the server does not have the method
	Header  http.Header // of the call, with canonical names
	Answer  http.Header // sent with the answer
	Next    func(context.Context) error
}

// A Framework is what the adapters do not share. Both have the codes of google/rpc/code.proto.
type Framework struct {
	Code func(error) uint32 // that clients see if a handler returns an error, or nil
	Send func(*Call)        // sends the header of an answer; nil means that the framework sends it

	// Error returns an error that wraps err, which clients see as its code, text and details.
	Error func(code uint32, details []proto.Message, err error) error

	// The fields of the adapter's Limiter.
	Caller limit.Caller[context.Context]
	Refuse func(context.Context, limit.Decision) error
	Fail   func(context.Context, error) error
}

// Bind returns a function that serves calls by rules. It panics if they are invalid.
func (f Framework) Bind(l *limit.Limiter, rules limit.RuleSet) (serve func(*Call) error) {
	send := func(c *Call, _ int) {
		if f.Send != nil {
			f.Send(c)
		}
	}
	a := &adapter.Adapter[*Call]{
		RPC: true,
		Route: func(c *Call) (string, string) {
			if c.Unknown {
				return "", ""
			}
			return "", c.Method
		},
		Next: func(c *Call, r *http.Request) (int, error) {
			send(c, 0)
			err := c.Next(r.Context())
			return adapter.RPCStatus(f.Code(err)), err
		},
		Caller:    adapter.CallerOf(f.Caller, func(c *Call) context.Context { return c.Context }),
		SetStatus: send,
		Answer: func(c *Call, status int, _ []byte, cause error) error {
			return f.Error(answer(c, status, cause))
		},
	}
	if f.Refuse != nil {
		a.Refuse = func(c *Call, d limit.Decision) error { return f.Refuse(c.Context, d) }
	}
	if f.Fail != nil {
		a.Fail = func(c *Call, err error) error { return f.Fail(c.Context, err) }
	}
	policy, err := a.Bind(l, "", rules)
	if err != nil {
		panic(err)
	}
	return func(c *Call) error {
		r := adapter.RPCRequest(c.Context, c.Method, c.Peer, c.Header)
		return a.Serve(policy, adapter.HeaderWriter(c.Answer), r, c)
	}
}

// The codes of calls that are not admitted.
const (
	permissionDenied  = 7
	resourceExhausted = 8
	unavailable       = 14
)

// An undecided is an error that does not show its cause to clients.
type undecided struct{ cause error }

func (undecided) Error() string { return "limit: the rate limiter is unavailable" }

func (u undecided) Unwrap() error { return u.cause }

func answer(c *Call, status int, cause error) (code uint32, details []proto.Message, err error) {
	code, err = unavailable, undecided{cause}
	if refused, ok := cause.(*limit.RefusedError); ok && refused.Decision.Mode != core.ModeRefused {
		err = refused
		switch status {
		case http.StatusForbidden:
			code = permissionDenied
		case http.StatusServiceUnavailable:
		default:
			code = resourceExhausted
		}
		if code != permissionDenied {
			details = append(details, quotaFailure(refused.Decision))
		}
	}
	if seconds, err := strconv.Atoi(c.Answer.Get("Retry-After")); err == nil {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(time.Duration(seconds) * time.Second)})
	}
	return code, details, err
}

func quotaFailure(d limit.Decision) *errdetails.QuotaFailure {
	failure := new(errdetails.QuotaFailure)
	for r := range d.Rules() {
		if !r.Allowed && !r.Shadow && !r.Marked {
			failure.Violations = append(failure.Violations, &errdetails.QuotaFailure_Violation{
				Subject:     r.Name,
				Description: fmt.Sprintf("%d of %d left", r.Remaining, r.Capacity),
			})
		}
	}
	return failure
}
