package main

import (
	"context"
	"io"
)

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
