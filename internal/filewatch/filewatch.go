// Package filewatch reads files that may change: when they are written, when another
// file is renamed to their name, and when a symbolic link on their path leads elsewhere,
// as in a mounted ConfigMap.
//
// It polls. Notifications of the system are about a file and not about its path, and are
// absent on network file systems.
package filewatch

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// Every is how often to call [File.Changed].
const Every = 500 * time.Millisecond

// A File is a path and what was read from it last. Path is required. It is not safe for
// concurrent use.
type File struct {
	Path string

	loaded os.FileInfo // what was read last, whether it was valid or not
	seen   os.FileInfo // a file that differs from it
}

// Changed reports whether the file differs from the one that was read last, and has not
// changed since the call before: a file that is being written is left alone.
func (f *File) Changed() (bool, error) {
	info, err := os.Stat(f.Path)
	switch {
	case err != nil:
		f.seen = nil
		return false, err
	case same(info, f.loaded):
		f.seen = nil
		return false, nil
	case !same(info, f.seen):
		f.seen = info
		return false, nil
	}
	f.seen = nil
	return true, nil
}

// ErrWritten is returned by [File.Read] for a file that changed while it was read. It is
// still Changed.
var ErrWritten = errors.New("the file was written while it was read")

// Read reads the file by a function, which gets its size too. It returns the error of
// the function, or why there is no regular file to read.
func (f *File) Read(read func(text io.Reader, size int64) error) error {
	if info, err := os.Stat(f.Path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", f.Path) // opening a pipe would wait
	}
	file, err := os.Open(f.Path)
	if err != nil {
		return err
	}
	defer file.Close()
	before, err := file.Stat()
	if err != nil {
		return err
	}
	err = read(file, before.Size())
	if after, stat := file.Stat(); stat != nil || !same(before, after) {
		return fmt.Errorf("%s: %w", f.Path, ErrWritten)
	}
	f.loaded = before
	return err
}

func same(a, b os.FileInfo) bool {
	return a != nil && b != nil && os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}
