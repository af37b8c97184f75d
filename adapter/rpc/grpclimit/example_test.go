package grpclimit_test

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/adapter/rpc/grpclimit"
)

type contextKey struct{}

// authenticate puts the user into the context. Here, every caller is alice.
func authenticate(ctx context.Context, message any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	return handler(context.WithValue(ctx, contextKey{}, "alice"), message)
}

// One quota of each user for all methods, and at most 100 streams at once.
func Example() {
	rl := grpclimit.New(limit.New(nil, nil))
	rl.Caller.User = func(ctx context.Context) string {
		user, _ := ctx.Value(contextKey{}).(string)
		return user
	}
	calls := limit.Named("calls", limit.PerUser(time.Minute, 600), limit.PerIP(time.Second, 50))
	streams := limit.Named("streams", limit.Rule{Key: limit.Everyone, Limit: 100, Algorithm: limit.Concurrency{}})

	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(authenticate, rl.Unary(calls)),
		grpc.ChainStreamInterceptor(rl.Stream(streams)),
	)
	defer server.Stop()
	// Register services, and call server.Serve.
}
