package redisstore

import (
	"context"
	"crypto/rand"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit/core"
)

// errForgotten is about a server that may have lost data since the last call.
var errForgotten = fmt.Errorf("%w: Redis was restarted or another server took over", core.ErrForgotten)

// errNoIdentity is about a server that could lose its data unnoticed. It does not
// wrap core.ErrOutOfReach, which promises the opposite.
var errNoIdentity = fmt.Errorf("%w: the Redis user may run neither INFO nor EVAL, so a restart that loses data would go unnoticed: "+
	"grant +info", core.ErrUnavailable)

// identify returns an error if the server may not be the one that it was. So do
// all calls that began before. A server that is called for the first time after a
// failed call may have replaced the one that failed.
func (s *Store) identify(ctx context.Context, a *attempt) error {
	a.identified = true
	failures := a.server.failures.Load()
	sent := localTime()
	identity, now, err := a.readIdentity(ctx)
	if err != nil {
		return err
	}
	received := localTime()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.identity != identity {
		a.clock.forget()
	}
	if now > 0 {
		a.clock.learn(sent, received, now)
	}
	if err := s.unchanged(a); err != nil {
		return err
	}
	before := a.identity
	a.identity = identity
	a.server.checked.Store(failures)
	a.server.connections.Store(connections(a.client)) // with the one that was opened for the question
	if a.known.Swap(true) {
		if before == identity {
			return nil
		}
	} else if !s.anyFailure.Load() {
		return nil
	}
	s.restarts.CompareAndSwap(a.restarts, a.restarts+1)
	return errForgotten
}

// unchanged returns an error if a server was found to be another one since a began.
func (s *Store) unchanged(a *attempt) error {
	if s.restarts.Load() != a.restarts {
		return errForgotten
	}
	return nil
}

// identifyInBackground identifies a server beside the calls, since a call to a
// distant server has no time for a second question. The next Take reports what it finds.
func (s *Store) identifyInBackground(a attempt) {
	defer a.checking.Store(false)
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	_ = guarded(func() error { return s.identify(ctx, &a) }) // after an error the next call asks again
}

// report remembers that a caller of Take receives err. The call that notices a
// restart may have lost its caller, or return another error: then the next Take
// reports the restart.
func (s *Store) report(err error) error {
	if errors.Is(err, core.ErrForgotten) {
		s.reported.Store(s.restarts.Load())
	}
	return err
}

// readIdentity returns what tells one start of a server from another: its run id
// or, for a user that may not run INFO, a marker that it has kept since. With the run
// id it returns the server's time in µs, or 0 if the server does not say.
func (a *attempt) readIdentity(ctx context.Context) (identity string, now int64, err error) {
	text, err := a.client.Info(ctx, "server").Result()
	switch {
	case err == nil:
		if id := field(text, "run_id"); id != "" {
			now, _ = strconv.ParseInt(field(text, "server_time_usec"), 10, 64)
			return id, now, nil
		}
	case !isRefused(err):
		return "", 0, err
	}
	identity, err = a.mark(ctx)
	return identity, 0, err
}

// field returns a field of a reply of INFO, or "".
func field(info, name string) string {
	_, after, _ := strings.Cut(info, "\n"+name+":")
	value, _, found := strings.Cut(after, "\r")
	if !found {
		return ""
	}
	return value
}

// A marker is a script that only this store knows, since its text is random. A
// server that runs it by its hash has not been restarted since it was loaded:
// Redis neither stores nor replicates the scripts that EVAL loads. (Redis 6.2 does
// both while a replica is connected.)
type marker struct {
	text   string
	loaded atomic.Bool
}

func newMarker() *marker { return &marker{text: "return '" + rand.Text() + "'"} }

// mark returns the marker that the server has. If it has none, it gets one.
func (a *attempt) mark(ctx context.Context) (string, error) {
	a.marker.CompareAndSwap(nil, newMarker())
	m := a.marker.Load()
	if m.loaded.Load() {
		sum := sha1.Sum([]byte(m.text))
		err := a.client.EvalSha(ctx, hex.EncodeToString(sum[:]), nil).Err()
		switch {
		case err == nil:
			return m.text, nil
		case !redis.HasErrorPrefix(err, "NOSCRIPT ") && !isRefused(err):
			return "", err
		}
		a.marker.CompareAndSwap(m, newMarker())
		m = a.marker.Load()
	}
	err := a.client.Eval(ctx, m.text, nil).Err()
	switch {
	case isRefused(err):
		return "", errNoIdentity
	case err != nil:
		return "", err
	}
	m.loaded.Store(true)
	return m.text, nil
}

// isRefused reports whether the server does not run a command for this user, or at
// all.
func isRefused(err error) bool {
	code, message, replied := replyOf(err)
	return replied && !isUnavailable(code, message)
}
