package connectlimit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/routelimit/limit"
)

// unaryHeader returns the header of the response to a unary call, which goes out
// with a message and with an error.
func unaryHeader(ctx context.Context) http.Header {
	if info, ok := connect.CallInfoForHandlerContext(ctx); ok {
		return info.ResponseHeader()
	}
	return make(http.Header) // called without a handler
}

// code returns the code that Connect answers with if a handler returns err.
func code(err error) uint32 {
	switch {
	case err == nil:
		return 0
	case errors.As(err, new(*connect.Error)):
		return uint32(connect.CodeOf(err))
	case errors.Is(err, context.Canceled):
		return uint32(connect.CodeCanceled)
	case errors.Is(err, context.DeadlineExceeded):
		return uint32(connect.CodeDeadlineExceeded)
	}
	return uint32(connect.CodeUnknown)
}

// An unavailable is an error that does not show its cause to clients.
type unavailable struct{ cause error }

func (unavailable) Error() string { return "limit: the rate limiter is unavailable" }

func (u unavailable) Unwrap() error { return u.cause }

// answer returns the error of a call that was not admitted, with details.
func answer(c call, status int, _ []byte, cause error) error {
	answer := connect.NewError(connect.CodeUnavailable, unavailable{cause})
	if refused, ok := cause.(*limit.RefusedError); ok && refused.Decision.Mode != limit.ModeRefused {
		switch status {
		case http.StatusForbidden:
			answer = connect.NewError(connect.CodePermissionDenied, refused)
		case http.StatusServiceUnavailable:
			answer = connect.NewError(connect.CodeUnavailable, refused)
			addDetail(answer, quotaFailure(refused.Decision))
		default:
			answer = connect.NewError(connect.CodeResourceExhausted, refused)
			addDetail(answer, quotaFailure(refused.Decision))
		}
	}
	if seconds, err := strconv.Atoi(c.header.Get("Retry-After")); err == nil {
		addDetail(answer, &errdetails.RetryInfo{RetryDelay: durationpb.New(time.Duration(seconds) * time.Second)})
	}
	return answer
}

func addDetail(to *connect.Error, message proto.Message) {
	if detail, err := connect.NewErrorDetail(message); err == nil {
		to.AddDetail(detail)
	}
}

// quotaFailure names the rules that had no room.
func quotaFailure(d limit.Decision) *errdetails.QuotaFailure {
	failure := new(errdetails.QuotaFailure)
	for _, r := range d.Rules() {
		if !r.Allowed && !r.Shadow && !r.Marked {
			failure.Violations = append(failure.Violations, &errdetails.QuotaFailure_Violation{
				Subject:     r.Name,
				Description: fmt.Sprintf("%d of %d left", r.Remaining, r.Capacity),
			})
		}
	}
	return failure
}
