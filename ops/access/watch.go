package access

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/routelimit/limit/internal/filewatch"
	"github.com/routelimit/limit/internal/notice"
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
	l := &List{log: options.log()}
	w := watcher{list: l, file: filewatch.File{Path: path}}
	if err := w.load(); err != nil {
		return nil, err
	}
	go filewatch.Poll(ctx, w.look)
	return l, nil
}

type watcher struct {
	list   *List
	file   filewatch.File
	failed string // what was logged last
}

// look reads the file if it has changed, but not since the last look.
func (w *watcher) look() {
	changed, err := w.file.Changed()
	if changed {
		err = w.load()
	}
	switch {
	case err != nil:
		w.report(err)
	case changed:
		w.failed = ""
		cmp.Or(w.list.log.To, slog.Default()).Info("access: a list has changed", "path", w.file.Path)
	}
}

// report logs why the file could not be read, unless the last line was the same.
func (w *watcher) report(err error) {
	if text := err.Error(); text != w.failed {
		w.failed = text
		notice.Write(w.list.log, notice.ListUnread, "access: a list could not be read: the one read before stays in force", 0, "path", w.file.Path, "error", text)
	}
}

// load reads the file.
func (w *watcher) load() error {
	var t *table
	var invalid error
	err := w.file.Read(func(text io.Reader, _ int64) error {
		t, invalid = parse(text, true)
		return invalid
	})
	switch {
	case invalid != nil && !errors.Is(err, filewatch.ErrWritten):
		return fmt.Errorf("%s: %w", w.file.Path, invalid)
	case err != nil:
		return fmt.Errorf("access: %w", err)
	}
	w.list.table.Store(t)
	return nil
}
