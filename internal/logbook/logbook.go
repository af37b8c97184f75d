// Package logbook keeps what a test, or a command that it runs, has written.
package logbook

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
)

// A Book keeps the lines of a log or of an output. The zero Book is empty. It is safe for
// concurrent use.
type Book struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements [io.Writer].
func (b *Book) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String returns what has been written since [Book.Lines] was last asked.
func (b *Book) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// Log returns a log that is kept in b, as text and without times.
func (b *Book) Log() *slog.Logger {
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

// Lines returns what has been written since it was last asked.
func (b *Book) Lines() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.text.Reset()
	return strings.FieldsFunc(b.text.String(), func(r rune) bool { return r == '\n' })
}
