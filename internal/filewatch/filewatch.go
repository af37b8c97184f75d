// Package filewatch reads files that may change: when they are written, when another
// file is renamed to their name, and when a symbolic link on their path leads elsewhere,
// as in a mounted ConfigMap.
//
// It polls. Notifications of the system are about a file and not about its path, and are
// absent on network file systems.
package filewatch

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"
)

// A File is a path and what was read from it last. Path and Most are required. It is not
// safe for concurrent use.
type File struct {
	Path string
	Most int64 // bytes to read: of a longer file, Read returns one more

	loaded os.FileInfo // what was read last, whether it was valid or not
	seen   os.FileInfo // a file that differs from it
}

// Follow calls changed with the text of the file, or with why it cannot be read, each
// time that it looks, until ctx ends: every 500 ms, unless the file is as it was. A file
// that has changed since the last look is left alone, since it may be half written.
func (f *File) Follow(ctx context.Context, changed func(text []byte, err error)) {
	ticker := time.NewTicker(500 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			f.look(changed)
		}
	}
}

func (f *File) look(changed func(text []byte, err error)) {
	info, err := os.Stat(f.Path)
	before := f.seen
	f.seen = nil
	switch {
	case err != nil:
		f.loaded = nil // the same file may come back, and then there is no error any more
		changed(nil, err)
	case same(info, f.loaded):
	case same(info, before):
		changed(f.Read())
	default:
		f.seen = info
	}
}

// Read returns the text of the file. It must be a regular one, and must not be written
// meanwhile.
func (f *File) Read() ([]byte, error) {
	f.loaded = nil
	if info, err := os.Stat(f.Path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", f.Path) // opening a pipe would wait
	}
	file, err := os.Open(f.Path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	before, err := file.Stat()
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(file, f.Most+1))
	if err != nil {
		return nil, err
	}
	if after, err := file.Stat(); err != nil || !same(before, after) {
		return nil, fmt.Errorf("%s was written while it was read", f.Path)
	}
	f.loaded = before
	return text, nil
}

func same(a, b os.FileInfo) bool {
	return a != nil && b != nil && os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}
