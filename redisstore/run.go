package redisstore

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/lua"
)

// run calls a script once. Every call of the store goes through here: it ends
// with ctx or with the timeout of the store, whatever the client does, and its
// error is one of the infrastructure, or of what was asked, or that of ctx.
func (s *Store) run(ctx context.Context, script *lua.Script, keys []string, args []any) ([]int64, error) {
	timed, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	bounded, end := context.WithCancelCause(timed)
	defer end(nil)
	defer time.AfterFunc(knockAfter, func() { end(s.knock(bounded, keys[0])) }).Stop()
	var at atomic.Pointer[server]
	var reply []int64
	var err error
	if s.heeds {
		reply, err = s.eval(bounded, &at, script, keys, args)
	} else {
		reply, err = s.evalAside(bounded, &at, script, keys, args)
	}
	if err == nil {
		return reply, nil
	}
	if cause := context.Cause(bounded); errors.Is(cause, core.ErrUnavailable) {
		err = cause
	}
	err = s.explain(ctx, err)
	if ctx.Err() != nil || errors.Is(err, core.ErrOutOfReach) {
		s.failed(at.Load())
	}
	return nil, err
}

// evalAside is eval for a client that may come back too late. What it leaves
// behind ends with the client's own timeout. It waits for the server, and so
// holds one of the client's connections: there are never more of them.
func (s *Store) evalAside(ctx context.Context, at *atomic.Pointer[server], script *lua.Script, keys []string, args []any) ([]int64, error) {
	type result struct {
		reply []int64
		err   error
	}
	done := make(chan result, 1)
	go func() {
		var r result
		defer func() {
			if problem := recover(); problem != nil { // of a hook: in this goroutine, it would end the program
				r.err = panicked(problem)
			}
			done <- r
		}()
		r.reply, r.err = s.eval(ctx, at, script, keys, args)
	}()
	select {
	case r := <-done:
		return r.reply, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// eval sends the script's name, and its text only to a server that says it does
// not know it: no other error shows that nothing was taken. See server.go for what
// it wants to know of the server.
func (s *Store) eval(
	ctx context.Context, at *atomic.Pointer[server], script *lua.Script, keys []string, args []any,
) ([]int64, error) {
	v, err := s.visit(ctx, keys[0])
	if err != nil || !v.asked { // one that has told a moment ago who it is may be slow, and no more
		at.Store(v.server)
	}
	if err != nil {
		return nil, err
	}
	reply, err := s.send(ctx, "evalsha", script.SHA, keys, args)
	if err != nil && ctx.Err() == nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		at.Store(v.server)
	}
	if redis.HasErrorPrefix(err, "NOSCRIPT ") {
		if !v.asked { // or it has not had the script yet
			if err := s.identify(ctx, &v); err != nil {
				return nil, err
			}
		}
		reply, err = s.send(ctx, "eval", script.Text, keys, args)
	}
	if err == nil {
		err = s.end(ctx, &v)
	}
	return reply, err
}

func (s *Store) send(ctx context.Context, command, script string, keys []string, args []any) ([]int64, error) {
	words := make([]any, 0, 3+len(keys)+len(args))
	words = append(words, command, script, len(keys))
	for _, key := range keys {
		words = append(words, key)
	}
	cmd := once{redis.NewIntSliceCmd(ctx, append(words, args...)...)}
	cmd.SetFirstKeyPos(3)
	if err := s.client.Process(ctx, cmd); err != nil {
		return nil, err
	}
	return cmd.Result()
}

// once is a command that the client does not repeat.
type once struct{ *redis.IntSliceCmd }

func (once) NoRetry() bool { return true }

// heeding returns a client that ends its calls with the deadline of their
// context, on the connections of the given one, and whether it does. By default
// go-redis waits 5 s for the server whatever the context says.
func heeding(client redis.UniversalClient, timeout time.Duration) (redis.UniversalClient, bool) {
	switch c := client.(type) {
	case *redis.Client:
		o := c.Options()
		if o.ContextTimeoutEnabled && o.ReadTimeout >= 0 && o.WriteTimeout >= 0 {
			return c, true
		}
		// The options of the copy are its own until it is used. Should that
		// change, it does not heed, and the store waits beside it.
		c = c.WithTimeout(timeout)
		own := c.Options()
		own.ContextTimeoutEnabled = true
		if o.ReadTimeout > 0 {
			own.ReadTimeout = o.ReadTimeout
		}
		if o.WriteTimeout > 0 {
			own.WriteTimeout = o.WriteTimeout
		}
		return c, c.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		o := c.Options()
		if o.ReadOnly {
			panic("redisstore: the ClusterClient reads from replicas, which know too little to decide: " +
				"give the store one without ReadOnly, RouteByLatency and RouteRandomly")
		}
		return c, o.ContextTimeoutEnabled && o.ReadTimeout >= 0 && o.WriteTimeout >= 0
	case *redis.Ring:
		panic("redisstore: a Ring gives the keys of a server that is out of reach to another, where every quota begins anew: " +
			"write redis.NewClusterClient, or redis.NewClient for one server")
	}
	return client, false
}
