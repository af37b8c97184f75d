package connectlimit_test

import (
	"context"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/adapter/rpc/connectlimit"
)

// A quota for each procedure of a service, and one for all of them.
func Example() {
	rl := connectlimit.New(limit.New(nil, nil))
	limits := connect.WithInterceptors(
		rl.Limit(limit.Named("service", limit.Global(time.Minute, 10_000))),
		rl.Limit(limit.EachRoute(limit.PerIP(time.Second, 20))),
	)

	mux := http.NewServeMux()
	// A generated constructor, such as NewBooksHandler, takes limits as well.
	const procedure = "/acme.v1.Books/Ping"
	mux.Handle(procedure, connect.NewUnaryHandler(procedure,
		func(context.Context, *connect.Request[emptypb.Empty]) (*connect.Response[emptypb.Empty], error) {
			return connect.NewResponse(new(emptypb.Empty)), nil
		}, limits))
}
