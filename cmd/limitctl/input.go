package main

import (
	"context"
	"io"
	"os"
)

// A spool is a copy of what is read, to read it again. If it cannot be written, there is none.
type spool struct {
	file *os.File
	err  error // the first one
}

// Write implements [io.Writer]. It never fails, so that what is read is not cut short.
func (s *spool) Write(p []byte) (int, error) {
	if s.err == nil {
		_, s.err = s.file.Write(p)
	}
	return len(p), nil
}

// again returns the copy, or nil if there is none.
func (s *spool) again() io.Reader {
	if s.err == nil {
		_, s.err = s.file.Seek(0, io.SeekStart)
	}
	if s.err != nil {
		return nil
	}
	return s.file
}

func (s *spool) remove() {
	if s.file != nil {
		s.file.Close()
		os.Remove(s.file.Name())
	}
}

// interruptible returns an input that ends with a context, although a read of it may wait
// forever: from a terminal, or a pipe whose writer is silent. What was read until then is
// decided.
func interruptible(ctx context.Context, from io.Reader) io.Reader {
	read, write := io.Pipe()
	go func() {
		_, err := io.Copy(write, from)
		write.CloseWithError(err)
	}()
	context.AfterFunc(ctx, func() { write.Close() })
	return read
}
