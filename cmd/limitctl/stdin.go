package main

import (
	"bytes"
	"context"
	"io"
)

// An interruptible is an input that ends with a context, although a read of it may wait
// for ever: from a terminal, or a pipe whose writer is silent. It is not safe for
// concurrent use.
type interruptible struct {
	ctx    context.Context
	from   io.Reader
	chunks chan chunk // nil before the first read
	rest   bytes.Reader
	err    error // after rest
}

type chunk struct {
	data []byte
	err  error
}

func (i *interruptible) Read(p []byte) (int, error) {
	if i.chunks == nil {
		i.chunks = make(chan chunk, 4)
		go i.read()
	}
	for i.rest.Len() == 0 {
		if i.err != nil {
			return 0, i.err
		}
		select {
		case c := <-i.chunks:
			i.rest.Reset(c.data)
			i.err = c.err
		case <-i.ctx.Done():
			i.err = io.EOF // what was read is decided; the caller knows that ctx has ended
		}
	}
	return i.rest.Read(p)
}

// read ends at the end of the input, or at the first read after ctx has ended. A read
// that waits then goes on until the program ends.
func (i *interruptible) read() {
	for {
		data := make([]byte, 64<<10)
		n, err := i.from.Read(data)
		select {
		case i.chunks <- chunk{data[:n], err}:
		case <-i.ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}
