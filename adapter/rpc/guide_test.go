package rpc_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/adapter/rpc/connectlimit"
	"github.com/routelimit/limit/adapter/rpc/grpclimit"
)

// The programs of docs/grpc-and-connect.md.

type callerKey struct{}

// callerOf returns the user that authentication has put into the context.
func callerOf(ctx context.Context) string {
	user, _ := ctx.Value(callerKey{}).(string)
	return user
}

func authenticate(ctx context.Context, message any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	return handler(context.WithValue(ctx, callerKey{}, "alice"), message)
}

type authenticated struct {
	grpc.ServerStream
	ctx context.Context
}

func (s authenticated) Context() context.Context { return s.ctx }

func authenticateStream(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return handler(server, authenticated{stream, context.WithValue(stream.Context(), callerKey{}, "alice")})
}

// perMinute has the limits of methods that differ from the rule.
var perMinute = map[string]int64{"/books.v1.Books/Search": 1}

func newServer() *grpc.Server {
	limiter := limit.New(nil, &limit.Options{
		Exempt: func(c limit.Client) bool { return strings.HasPrefix(c.Request.URL.Path, "/grpc.health.v1.Health/") },
		Override: func(method, rule, key string) int64 {
			if rule != "per-user-1m" {
				return 0 // the limit of the rule
			}
			return perMinute[method]
		},
	})
	rl := grpclimit.New(limiter)
	rl.Caller.User = callerOf // the user that authenticate has put into the context

	each := limit.EachRoute(limit.PerUser(time.Minute, 2))
	return grpc.NewServer(
		grpc.ChainUnaryInterceptor(authenticate, rl.Unary(each)),
		grpc.ChainStreamInterceptor(authenticateStream, rl.Stream(each)),
	)
}

// own has the rules of methods that need other rules than the rest.
var own = map[string]limit.RuleSet{
	"/books.v1.Books/Export": limit.Named("export", limit.MustParse("1/1h per user; 4/1m global concurrency").Rules()...),
}

// options are for the constructors of handlers, such as NewBooksHandler.
func options(rl *connectlimit.Limiter, rest limit.RuleSet) connect.HandlerOption {
	return connect.WithConditionalHandlerOptions(func(spec connect.Spec) []connect.HandlerOption {
		rules, found := own[spec.Procedure]
		if !found {
			rules = rest
		}
		return []connect.HandlerOption{connect.WithInterceptors(rl.Limit(rules))}
	})
}

// unary applies the rules of a method that has its own, and otherwise those of the rest.
func unary(rl *grpclimit.Limiter, rest limit.RuleSet) grpc.UnaryServerInterceptor {
	interceptors := make(map[string]grpc.UnaryServerInterceptor)
	for method, rules := range own {
		interceptors[method] = rl.Unary(rules)
	}
	others := rl.Unary(rest)
	return func(ctx context.Context, message any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if limited, found := interceptors[info.FullMethod]; found {
			return limited(ctx, message, info, handler)
		}
		return others(ctx, message, info, handler)
	}
}

// methods are those of the service of the guide, in the order in which TestGuide calls them.
var methods = []string{"Get", "Get", "Get", "Search", "Search", "Export", "Export"}

// TestGuide runs the programs of the guide on servers of gRPC and Connect.
func TestGuide(t *testing.T) {
	books := &grpc.ServiceDesc{ServiceName: "books.v1.Books", HandlerType: (*any)(nil)}
	for _, name := range []string{"Get", "Search", "Export"} {
		books.Methods = append(books.Methods, grpc.MethodDesc{MethodName: name,
			Handler: func(_ any, ctx context.Context, read func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
				if err := read(new(emptypb.Empty)); err != nil {
					return nil, err
				}
				return interceptor(ctx, new(emptypb.Empty), &grpc.UnaryServerInfo{FullMethod: "/books.v1.Books/" + name},
					func(context.Context, any) (any, error) { return new(emptypb.Empty), nil })
			}})
	}
	callGRPC := func(server *grpc.Server) (admitted []bool) {
		server.RegisterService(books, nil)
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		go server.Serve(listener)
		defer server.Stop()
		conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		require.NoError(t, err)
		defer conn.Close()
		for _, name := range methods {
			admitted = append(admitted, nil == conn.Invoke(t.Context(), "/books.v1.Books/"+name, new(emptypb.Empty), new(emptypb.Empty)))
		}
		return admitted
	}
	assert.Equal(t, []bool{true, true, false, true, false, true, true}, callGRPC(newServer()), "limits of methods")

	rest := limit.EachRoute(limit.PerUser(time.Minute, 2))
	want := []bool{true, true, false, true, true, true, false}
	rl := grpclimit.New(limit.New(nil, nil))
	rl.Caller.User = callerOf
	assert.Equal(t, want, callGRPC(grpc.NewServer(grpc.ChainUnaryInterceptor(authenticate, unary(rl, rest)))), "rules of methods")

	mux := http.NewServeMux()
	connectRL := connectlimit.New(limit.New(nil, nil))
	connectRL.Caller.User = func(context.Context) string { return "alice" }
	limits := options(connectRL, rest)
	for _, name := range []string{"Get", "Search", "Export"} {
		procedure := "/books.v1.Books/" + name
		mux.Handle(procedure, connect.NewUnaryHandler(procedure, func(context.Context, *connect.Request[emptypb.Empty]) (*connect.Response[emptypb.Empty], error) {
			return connect.NewResponse(new(emptypb.Empty)), nil
		}, limits))
	}
	server := httptest.NewServer(mux)
	defer server.Close()
	var admitted []bool
	for _, name := range methods {
		client := connect.NewClient[emptypb.Empty, emptypb.Empty](server.Client(), server.URL+"/books.v1.Books/"+name)
		_, err := client.CallUnary(t.Context(), connect.NewRequest(new(emptypb.Empty)))
		admitted = append(admitted, err == nil)
	}
	assert.Equal(t, want, admitted, "rules of procedures")
}
