package grpclimit

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
)

// code returns the code that gRPC answers with if a handler returns err.
func code(err error) uint32 {
	if s, ok := status.FromError(err); ok {
		return uint32(s.Code())
	}
	return uint32(status.FromContextError(err).Code())
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

func newError(code uint32, messages []proto.Message, err error) error {
	s := status.New(codes.Code(code), err.Error())
	details := make([]protoadapt.MessageV1, len(messages))
	for i, m := range messages {
		details[i] = protoadapt.MessageV1Of(m)
	}
	if detailed, err := s.WithDetails(details...); err == nil {
		s = detailed
	}
	return &statusError{s, err}
}
