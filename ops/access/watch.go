package access

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
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
	l, file := &List{log: options.log()}, filewatch.File{Path: path, Most: maxText}
	text, err := file.Read()
	if err := l.load(path, text, err); err != nil {
		return nil, err
	}
	logged := "" // since the last valid file
	go file.Follow(ctx, func(text []byte, err error) {
		if err = l.load(path, text, err); err == nil {
			logged = ""
			cmp.Or(l.log.To, slog.Default()).Info("access: a list has changed", "path", path)
		} else if err.Error() != logged {
			logged = err.Error()
			notice.Write(l.log, notice.ListUnread, "access: a list could not be read: the one read before stays in force", 0, "path", path, "error", logged)
		}
	})
	return l, nil
}

// load replaces the entries by those of a file, unless it could not be read.
func (l *List) load(path string, text []byte, err error) error {
	if err != nil {
		return fmt.Errorf("access: %w", err)
	}
	t, err := parse(bytes.NewReader(text), true)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	l.table.Store(t)
	return nil
}
