package grpclimit

import (
	"context"
	"net/http"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/routelimit/limit/adapter"
)

// request returns a call as package limit sees it.
func request(ctx context.Context) *http.Request {
	method, _ := grpc.Method(ctx)
	return adapter.RPCRequest(ctx, method, address(ctx), header(ctx))
}

// address returns the address of the peer, or "".
func address(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		return p.Addr.String()
	}
	return ""
}

// header returns the metadata of a call as the header of a request.
func header(ctx context.Context) http.Header {
	md, _ := metadata.FromIncomingContext(ctx)
	h := make(http.Header, len(md))
	for name, values := range md {
		h[http.CanonicalHeaderKey(name)] = values
	}
	return h
}

// sendHeader sends the header with the first message, or with the error.
func (c *call) sendHeader() {
	md := make(metadata.MD, len(c.header))
	for name, values := range c.header {
		md.Append(name, values...)
	}
	_ = grpc.SetHeader(c.ctx, md) // fails if the call has ended
}
