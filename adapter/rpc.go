package adapter

import (
	"context"
	"net/http"
	"net/url"
)

// RPCRequest returns a call of a remote procedure as a request, for [Adapter.Serve]: a POST to the
// procedure, such as "/acme.v1.Books/Get". The names in header are canonical. Peer is the address
// of the client, or "".
func RPCRequest(ctx context.Context, procedure, peer string, header http.Header) *http.Request {
	r := &http.Request{
		Method:     http.MethodPost,
		URL:        &url.URL{Path: procedure},
		Proto:      "HTTP/2.0",
		ProtoMajor: 2,
		Header:     header,
		Body:       http.NoBody,
		RemoteAddr: peer,
		RequestURI: procedure,
	}
	return r.WithContext(ctx)
}

// A HeaderWriter is a response writer that keeps the header alone, for protocols that write their
// responses.
type HeaderWriter http.Header

// Header implements [http.ResponseWriter].
func (w HeaderWriter) Header() http.Header { return http.Header(w) }

// WriteHeader implements [http.ResponseWriter].
func (HeaderWriter) WriteHeader(int) {}

func (HeaderWriter) Write(p []byte) (int, error) { return len(p), nil }

var rpcStatuses = [...]int{
	0:  http.StatusOK,                  // OK
	1:  499,                            // canceled
	2:  http.StatusInternalServerError, // unknown
	3:  http.StatusBadRequest,          // invalid argument
	4:  http.StatusGatewayTimeout,      // deadline exceeded
	5:  http.StatusNotFound,            // not found
	6:  http.StatusConflict,            // already exists
	7:  http.StatusForbidden,           // permission denied
	8:  http.StatusTooManyRequests,     // resource exhausted
	9:  http.StatusBadRequest,          // failed precondition
	10: http.StatusConflict,            // aborted
	11: http.StatusBadRequest,          // out of range
	12: http.StatusNotImplemented,      // unimplemented
	13: http.StatusInternalServerError, // internal
	14: http.StatusServiceUnavailable,  // unavailable
	15: http.StatusInternalServerError, // data loss
	16: http.StatusUnauthorized,        // unauthenticated
}

// RPCStatus returns the HTTP status of a code of gRPC or Connect by the table of
// google/rpc/code.proto, for [Adapter].Next and limit.Rule.Settle: 401 for unauthenticated, 499 for
// canceled, 500 for unknown codes.
func RPCStatus(code uint32) int {
	if int64(code) < int64(len(rpcStatuses)) {
		return rpcStatuses[code]
	}
	return http.StatusInternalServerError
}
