package redisstore

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit/lua"
)

// A server that was started anew, maybe without its data, has no scripts: the
// first call says NOSCRIPT, although the client has redialed without a word. So
// does one whose scripts were flushed; its uptime tells the two apart. It is
// asked only then, and so costs nothing.

// errRestarted is about a server that may have forgotten what was taken. Nothing
// was taken by the call. What stands around the store then knows better.
var errRestarted = errors.New("the server of Redis has been started anew, maybe without its data")

// A sent call is what restarted knows of one that begins.
type sent struct {
	restarts int64 // that were noticed before
	since    int64 // when a server first ran this script for this store, or 0
	now      int64 // if since is 0
}

// begin is called before a script is.
func (s *Store) begin(script *lua.Script) sent {
	call := sent{restarts: s.restarts.Load()}
	if since, ran := s.ran.Load(script); ran {
		call.since = since.(int64)
	} else {
		call.now = s.elapsed()
	}
	return call
}

// elapsed returns the nanoseconds since New, at least 1.
func (s *Store) elapsed() int64 { return max(1, int64(time.Since(s.made))) }

// end is called when a server has run the script. It returns an error if a
// restart was noticed meanwhile: it may have been the new server.
func (s *Store) end(script *lua.Script, call sent) error {
	if s.restarts.Load() != call.restarts {
		return errRestarted
	}
	if call.since == 0 {
		s.ran.LoadOrStore(script, call.now)
	}
	return nil
}

// restarted returns an error if the server of key, which does not know the
// script, was started after it has run it. The error is told once, and to all
// calls that have begun before. If the server does not tell its uptime, nobody
// knows.
func (s *Store) restarted(ctx context.Context, call sent, key string) error {
	if s.restarts.Load() != call.restarts {
		return errRestarted
	}
	if call.since == 0 {
		return nil
	}
	uptime, err := s.uptime(ctx, key)
	var reply redis.Error
	switch {
	case errors.As(err, &reply):
		return nil // it may not be asked
	case err != nil:
		return err
	}
	// It is the difference of two times in whole seconds, and so may be a second
	// too long. Where it is too short, a server of less than two seconds is in doubt.
	if uptime-time.Second > time.Duration(s.elapsed()-call.since) {
		return nil
	}
	if s.restarts.CompareAndSwap(call.restarts, call.restarts+1) {
		s.ran.Clear()
	}
	return errRestarted
}

// uptime asks the server of key for how long it runs.
func (s *Store) uptime(ctx context.Context, key string) (time.Duration, error) {
	client := s.client
	if cluster, ok := client.(*redis.ClusterClient); ok {
		node, err := cluster.MasterForKey(ctx, key)
		if err != nil {
			return 0, err
		}
		client = node
	}
	text, err := client.Info(ctx, "server").Result()
	if err != nil {
		return 0, err
	}
	_, after, _ := strings.Cut(text, "\nuptime_in_seconds:")
	line, _, _ := strings.Cut(after, "\r")
	seconds, err := strconv.ParseInt(line, 10, 32)
	if err != nil {
		return 1<<63 - 1, nil // it does not tell
	}
	return time.Duration(seconds) * time.Second, nil
}
