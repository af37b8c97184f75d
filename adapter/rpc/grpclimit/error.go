package grpclimit

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/routelimit/limit"
)

// code returns the code that gRPC answers with if a handler returns err.
func code(err error) codes.Code {
	if s, ok := status.FromError(err); ok {
		return s.Code()
	}
	return status.FromContextError(err).Code()
}

// A statusError is an error that clients see as a status, without its cause.
type statusError struct {
	status *status.Status
	cause  error
}

func (e *statusError) Error() string { return e.status.Err().Error() }

func (e *statusError) Unwrap() error { return e.cause }

// GRPCStatus is for [status.FromError].
func (e *statusError) GRPCStatus() *status.Status { return e.status }

// answer returns the error of a call that was not admitted, with details.
func answer(c *call, httpStatus int, _ []byte, cause error) error {
	s := status.New(codes.Unavailable, "limit: the rate limiter is unavailable")
	var details []protoadapt.MessageV1
	if refused, ok := cause.(*limit.RefusedError); ok && refused.Decision.Mode != limit.ModeRefused {
		code := codes.ResourceExhausted
		switch httpStatus {
		case http.StatusForbidden:
			code = codes.PermissionDenied
		case http.StatusServiceUnavailable:
			code = codes.Unavailable
		}
		s = status.New(code, refused.Error())
		if code != codes.PermissionDenied {
			details = append(details, quotaFailure(refused.Decision))
		}
	}
	if seconds, err := strconv.Atoi(c.header.Header().Get("Retry-After")); err == nil {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(time.Duration(seconds) * time.Second)})
	}
	if detailed, err := s.WithDetails(details...); err == nil {
		s = detailed
	}
	return &statusError{s, cause}
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
