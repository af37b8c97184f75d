package access

import (
	"context"
	"fmt"
	"os"
	"time"
)

// Watch reads a list from a file, and reads it again whenever the file changes, until
// ctx ends: when it is written, when another file is renamed to its name, and when a
// symbolic link on its path leads elsewhere, as in a mounted ConfigMap. A change is in
// force about a second after the last write to the file.
//
// The error is about the file as it is now, and has all that [Parse] reports. Later, a
// file that is missing, invalid or half written changes nothing, and is logged once.
// Since a file may be seen while it is written, one that is empty, or that does not end
// with a line feed, counts as half written. For an empty list, write a comment.
func Watch(ctx context.Context, path string, options *Options) (*List, error) {
	l := &List{options: options.orDefault()}
	w := watcher{list: l, path: path}
	if err := w.load(); err != nil {
		return nil, err
	}
	go w.run(ctx)
	return l, nil
}

// pollEvery is how often a file is looked at. It is read when it has not changed
// between two looks.
const pollEvery = 500 * time.Millisecond

type watcher struct {
	list   *List
	path   string
	loaded os.FileInfo // the file that was read last, whether it was valid or not
	seen   os.FileInfo // a file that differs from it
	failed string      // what was logged last
}

func (w *watcher) run(ctx context.Context) {
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			w.look()
		}
	}
}

// look reads the file if it has changed, but not since the last look.
func (w *watcher) look() {
	info, err := os.Stat(w.path)
	switch {
	case err != nil:
		w.seen = nil
		w.report(err)
		return
	case same(info, w.loaded):
		w.seen = nil
		return
	case !same(info, w.seen):
		w.seen = info
		return
	}
	w.seen = nil
	if err := w.load(); err != nil {
		w.report(err)
		return
	}
	w.failed = ""
	w.list.options.log().Info("access: a list has changed", "path", w.path)
}

func same(a, b os.FileInfo) bool {
	return a != nil && b != nil && os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// report logs why the file could not be read, unless the last line was the same.
func (w *watcher) report(err error) {
	if text := err.Error(); text != w.failed {
		w.failed = text
		w.list.options.log().Error("access: a list could not be read: the one read before stays in force", "path", w.path, "error", text)
	}
}

// load reads the file.
func (w *watcher) load() error {
	if info, err := os.Stat(w.path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("access: %s is not a regular file", w.path) // opening a pipe would wait
	}
	f, err := os.Open(w.path)
	if err != nil {
		return fmt.Errorf("access: %w", err)
	}
	defer f.Close()
	before, err := f.Stat()
	if err != nil {
		return fmt.Errorf("access: %w", err)
	}
	t, err := parse(f, &w.list.options, true)
	if after, stat := f.Stat(); stat != nil || !same(before, after) {
		return fmt.Errorf("access: %s was written while it was read", w.path) // and is read again
	}
	w.loaded = before
	if err != nil {
		return fmt.Errorf("%s: %w", w.path, err)
	}
	w.list.table.Store(t)
	return nil
}
