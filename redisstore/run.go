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

// run calls a script once. Every call of the store goes through here. It ends with
// ctx or with the timeout of the store, whatever the options of the client are.
func (s *Store) run(ctx context.Context, script *lua.Script, keys []string, args []any) ([]int64, error) {
	began := ticks()
	timed, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	bounded, end := context.WithCancelCause(timed)
	defer end(nil)
	defer time.AfterFunc(probeAfter, func() { end(s.probe(bounded, keys[0])) }).Stop()
	var failing atomic.Pointer[server]
	var reply []int64
	var err error
	if s.deadlines {
		reply, err = s.eval(bounded, &failing, script, keys, args)
	} else {
		reply, err = s.evalDetached(bounded, &failing, script, keys, args)
	}
	if err == nil {
		return reply, nil
	}
	if cause := context.Cause(bounded); errors.Is(cause, core.ErrUnavailable) {
		err = cause
	}
	if problem := s.hindered(timed, keys, began, err); problem != nil {
		return nil, s.explain(ctx, problem) // the server has not failed
	}
	err = s.explain(ctx, err)
	if ctx.Err() != nil || errors.Is(err, core.ErrOutOfReach) {
		s.failed(failing.Load())
	}
	return nil, err
}

// evalDetached is eval for a client that ignores the deadline of its context. A
// call that is given up goes on until the client's own timeout. It holds one of the
// client's connections, and their number bounds these calls.
func (s *Store) evalDetached(
	ctx context.Context, failing *atomic.Pointer[server], script *lua.Script, keys []string, args []any,
) ([]int64, error) {
	type result struct {
		reply []int64
		err   error
	}
	done := make(chan result, 1)
	go func() {
		var r result
		defer func() {
			if problem := recover(); problem != nil { // a hook: a panic in this goroutine would end the program
				r.err = panicked(problem)
			}
			done <- r
		}()
		r.reply, r.err = s.eval(ctx, failing, script, keys, args)
	}()
	select {
	case r := <-done:
		return r.reply, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// eval sends the hash of the script, and its text only to a server that replies
// NOSCRIPT: after any other error the script may have run. It sets failing to the
// server that an error is about.
func (s *Store) eval(
	ctx context.Context, failing *atomic.Pointer[server], script *lua.Script, keys []string, args []any,
) ([]int64, error) {
	a, err := s.begin(ctx, keys[0])
	answered := false
	defer func() { a.leave(answered) }()
	if err != nil || !a.identified { // a server that has just answered may be slow, but does not fail
		failing.Store(a.server)
	}
	if err != nil {
		return nil, err
	}
	reply, err := s.send(ctx, "evalsha", script.SHA, keys, args)
	if err != nil && ctx.Err() == nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		failing.Store(a.server)
	}
	if redis.HasErrorPrefix(err, "NOSCRIPT ") {
		if !a.identified { // else the server has not been sent the script yet
			if err := s.identify(ctx, &a); err != nil {
				return nil, err
			}
		}
		reply, err = s.send(ctx, "eval", script.Text, keys, args)
	}
	_, _, refused := replyOf(err)
	answered = err == nil || refused
	if err == nil {
		err = s.end(ctx, &a)
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
