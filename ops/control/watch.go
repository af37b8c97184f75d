package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit/internal/notice"
	"github.com/routelimit/limit/internal/redisfacts"
)

const (
	pollEvery   = 500 * time.Millisecond // how often the version is read
	pollTimeout = 300 * time.Millisecond // of a read of it
	pollAgain   = 100 * time.Millisecond // from a read that fails to the next one, until the failure is logged
	promised    = time.Second            // within which an instance has a change
)

// Watch follows the documents of a kind until ctx ends. It calls f with all of them, by their
// names: before it returns, unless Redis cannot be read, and after each change and each end of a
// document. Changes within half a second, or within the time of a call, may share a call. f must
// neither keep nor change the map. Calls of f do not overlap.
//
// The error is about the kind. Failures of Redis are logged, once each time, if they delay a change
// by more than a second. So are documents that another program has broken. Both leave what is known
// as it is.
func (c *Control) Watch(ctx context.Context, kind string, f func(map[string]Document)) error {
	if err := validKind(kind); err != nil {
		return err
	}
	w := &watcher{Control: c, kind: kind, names: c.keys(kind), f: f, documents: make(map[string]Document)}
	w.read(ctx)
	go w.run(ctx)
	return nil
}

// Read returns the documents that a kind has now, by their names. Where Watch waits a moment and
// tries again, Read has the timeouts of the client, and returns the error: it is for commands,
// which look once.
func (c *Control) Read(ctx context.Context, kind string) (map[string]Document, error) {
	if err := validKind(kind); err != nil {
		return nil, err
	}
	w := &watcher{Control: c, kind: kind, names: c.keys(kind), documents: make(map[string]Document)}
	if _, err := w.changes(ctx); err != nil {
		return nil, fmt.Errorf("control: documents of %s: %w", kind, c.explain(err))
	}
	w.dropEnded()
	return w.documents, nil
}

type watcher struct {
	*Control
	kind  string
	names []string // of the keys
	f     func(map[string]Document)

	version   string
	documents map[string]Document
	called    bool      // whether f was
	asOf      time.Time // the documents have all changes until then
	missed    bool      // the last read failed, and nothing was logged yet
	failing   bool      // a failure was logged
}

// run reads again and again, for at most half of a processor.
func (w *watcher) run(ctx context.Context) {
	for took := time.Duration(0); ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(w.next(took)):
		}
		began := time.Now()
		w.read(ctx)
		took = time.Since(began)
	}
}

// next returns when to look at the documents again: at the next poll, or when one ends.
func (w *watcher) next(took time.Duration) time.Duration {
	next := pollEvery
	if w.missed {
		next, took = pollAgain, 0
	}
	for _, d := range w.documents {
		if !d.Expires.IsZero() {
			next = min(next, time.Until(d.Expires))
		}
	}
	return max(next, took, time.Millisecond)
}

// read reads what has changed, drops the documents that have ended, and calls f if there is
// something new.
func (w *watcher) read(ctx context.Context) {
	began := time.Now()
	changed, err := w.fetch(ctx)
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		w.asOf = began
	}
	noRight := err != nil && redisfacts.NoRight(err.Error())
	// One slow read on a busy machine is not worth a line: the next one is in time.
	failing := err != nil && (noRight || time.Since(w.asOf) > promised)
	w.missed = err != nil && !failing
	if failing != w.failing && !w.missed {
		w.failing = failing
		code := notice.ControlUnread
		if failing {
			if noRight {
				code = notice.ControlRights
			}
			notice.Write(&w.log, code, "control: documents cannot be read from Redis; the last known ones stay in force", 0, "kind", w.kind, "error", w.explain(err))
		} else {
			cmp.Or(w.log.To, slog.Default()).Info("control: documents can be read from Redis again", "code", code, "kind", w.kind)
		}
	}
	if ended := w.dropEnded(); ended || changed || err == nil && !w.called {
		w.called = true
		w.f(w.documents)
	}
}

func (w *watcher) dropEnded() (dropped bool) {
	now := time.Now()
	for name, d := range w.documents {
		if !d.Expires.IsZero() && !now.Before(d.Expires) {
			delete(w.documents, name)
			dropped = true
		}
	}
	return dropped
}

func (w *watcher) fetch(ctx context.Context) (changed bool, err error) {
	short, cancel := context.WithTimeout(ctx, pollTimeout)
	version, err := w.poller.Get(short, w.names[0]).Result()
	cancel()
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return false, fmt.Errorf("no answer of Redis within %v: %w", pollTimeout, err)
	case err != nil && !errors.Is(err, redis.Nil):
		return false, err
	}
	for range 3 { // more changes may come meanwhile
		if version == w.version {
			return changed, nil
		}
		if version, err = w.changes(ctx); err != nil {
			return changed, err
		}
		changed = true
	}
	return changed, nil
}

// changes reads what has changed since the version. It returns the new one.
func (w *watcher) changes(ctx context.Context) (string, error) {
	reply, err := changesScript.Run(ctx, w.client, w.names, w.version, MaxHistory).Slice()
	if err != nil {
		return "", err
	}
	if len(reply) < 3 {
		return "", fmt.Errorf("a reply of %d parts", len(reply))
	}
	local := time.Now()
	version, _ := reply[0].(string)
	said, _ := reply[1].(string)
	now, err := strconv.ParseInt(said, 10, 64)
	if err != nil {
		return "", fmt.Errorf("an invalid time %q", said)
	}
	switch reply[2] {
	case int64(1):
	case int64(-1):
		return w.reconcile(ctx, version, now, local)
	default:
		return version, w.all(ctx, version, now, local)
	}
	var invalid []string
	for i := 3; i+1 < len(reply); i += 2 {
		name, _ := reply[i].(string)
		if text, there := reply[i+1].(string); !there {
			delete(w.documents, name)
		} else if !w.put(w.documents, name, text, now, local) {
			invalid = append(invalid, name)
		}
	}
	w.warn(invalid)
	w.version = version
	return version, nil
}

// all reads all documents. Those that change meanwhile are in the changes since the version, which
// was read before.
func (w *watcher) all(ctx context.Context, version string, now int64, local time.Time) error {
	documents, invalid, err := w.scan(ctx, now, local)
	if err != nil {
		return err
	}
	w.warn(invalid)
	w.version, w.documents = version, documents
	return nil
}

// scan returns all documents that Redis has, and the names of invalid ones.
func (w *watcher) scan(ctx context.Context, now int64, local time.Time) (documents map[string]Document, invalid []string, _ error) {
	documents = make(map[string]Document)
	for cursor := uint64(0); ; {
		pairs, next, err := w.client.HScan(ctx, w.names[1], cursor, "", 1000).Result()
		if err != nil {
			return nil, nil, err
		}
		for i := 0; i+1 < len(pairs); i += 2 {
			if !w.put(documents, pairs[i], pairs[i+1], now, local) {
				invalid = append(invalid, pairs[i])
			}
		}
		if cursor = next; cursor == 0 {
			return documents, invalid, nil
		}
	}
}

// put adds a document, and reports whether it is valid. One that is not leaves what is
// known of its name as it is, so that it does not keep the others from being in force.
func (w *watcher) put(documents map[string]Document, name, text string, now int64, local time.Time) bool {
	d, err := decode(text, now, local)
	if err != nil {
		if known, ok := w.documents[name]; ok {
			documents[name] = known
		}
		return false
	}
	documents[name] = d
	return true
}

func (w *watcher) warn(invalid []string) {
	if len(invalid) > 0 {
		notice.Write(&w.log, notice.ControlInvalid, "control: invalid documents have no effect: write them again, or delete them", 0, "kind", w.kind,
			"documents", len(invalid), "first", invalid[0][:min(len(invalid[0]), maxName)])
	}
}
