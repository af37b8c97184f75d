package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
)

// Options configures how a log is read. Nil and the zero Options are ready to use.
type Options struct {
	// Format is that of all lines. Nil means that each file's format is found from its
	// first lines, and that other formats are tried for lines that it does not read.
	Format *Format

	// MaxLine is the length in bytes of the longest line that is read; 0 means 1 MiB.
	// Longer lines are counted as bad.
	MaxLine int

	// Workers is how many goroutines parse a file; 0 means GOMAXPROCS.
	Workers int

	// Stdin is read for the path "-". Nil means that "-" is an error.
	Stdin io.Reader
}

const (
	defaultMaxLine = 1 << 20
	batchSize      = 1 << 18
	detectLines    = 50
)

func (o *Options) withDefaults() Options {
	var given Options
	if o != nil {
		given = *o
	}
	if given.MaxLine <= 0 {
		given.MaxLine = defaultMaxLine
	}
	if given.Workers <= 0 {
		given.Workers = runtime.GOMAXPROCS(0)
	}
	return given
}

// A Stream is the records of one log, in the order of its lines. Several goroutines
// parse ahead of the caller. They hold a few batches of 256 KiB of text and end with
// the log, or at Close. A Stream is for one goroutine.
type Stream struct {
	options Options
	read    atomic.Int64 // bytes, before decompression
	order   chan *batch  // in the order of the log
	free    chan *batch
	quit    chan struct{}
	close   sync.Once

	current *batch
	at      int
	stats   Stats

	// Set before order is closed.
	err       error
	truncated string
}

// NewStream returns the records of r, which may be compressed with gzip or zstd.
func NewStream(r io.Reader, options *Options) *Stream {
	s := &Stream{options: options.withDefaults(), quit: make(chan struct{})}
	batches := s.options.Workers + 3
	s.order, s.free = make(chan *batch, batches), make(chan *batch, batches)
	for range batches {
		s.free <- nil // made when it is needed
	}
	go s.split(&counter{r, &s.read})
	return s
}

// A counter counts what is read.
type counter struct {
	io.Reader
	n *atomic.Int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// Next returns the next record, or nil at the end. The record and its fields are valid
// until the next call.
func (s *Stream) Next() *Record {
	for s.current == nil || s.at == len(s.current.records) {
		if s.current != nil {
			s.free <- s.current // has room for all batches
			s.current = nil
		}
		b, ok := <-s.order
		if !ok {
			s.stats.Truncated = s.truncated
			return nil
		}
		<-b.done
		s.stats.add(&b.stats)
		s.current, s.at = b, 0
	}
	s.at++
	return &s.current.records[s.at-1]
}

// Stats returns what was read until now. After the end it is complete.
func (s *Stream) Stats() Stats {
	stats := s.stats
	stats.Bytes = s.read.Load()
	return stats
}

// Err returns why the log could not be read, once Next has returned nil: a
// [*FormatError], or an error of the reader before the first line. A log that ends
// early is not an error: see [Stats].Truncated.
func (s *Stream) Err() error { return s.err }

// Close ends the goroutines of the stream, the one that reads after a Read that has
// begun. It does not close the reader.
func (s *Stream) Close() { s.close.Do(func() { close(s.quit) }) }

// split cuts the log into batches of whole lines and hands them to the workers.
func (s *Stream) split(r io.Reader) {
	jobs := make(chan *batch, cap(s.free))
	defer close(jobs)
	defer close(s.order)
	text, release, err := decompress(r)
	if err != nil {
		s.err = fmt.Errorf("read log: %w", err)
		return
	}
	defer release()
	lines := &splitter{stream: s, from: text, line: 1}
	for started := false; ; {
		b := lines.next()
		if b == nil {
			return
		}
		if !started {
			started = true
			if err := s.start(b, jobs); err != nil {
				s.err = err
				return
			}
		}
		select {
		case s.order <- b:
		case <-s.quit:
			return
		}
		jobs <- b // has room for all batches
	}
}

// start finds the format from the first batch, and starts the workers.
func (s *Stream) start(first *batch, jobs <-chan *batch) error {
	f, others := s.options.Format, []*Format(nil)
	if f == nil {
		f, others = formats[0], formats
		if lines := firstLines(first.text, detectLines); len(lines) > 0 && !first.long {
			var err error
			if f, err = Detect(lines); err != nil {
				return err
			}
		}
	}
	for range s.options.Workers {
		go func() {
			for b := range jobs {
				b.parse(f, others, s.options.MaxLine)
				b.done <- struct{}{}
			}
		}()
	}
	return nil
}

// firstLines returns at most n lines that are not empty.
func firstLines(text []byte, n int) (lines [][]byte) {
	for line := range bytes.Lines(text) {
		if line = bytes.TrimRight(line, "\r\n"); len(line) > 0 {
			lines = append(lines, line)
		}
		if len(lines) == n {
			break
		}
	}
	return lines
}

// A splitter cuts a text after line breaks.
type splitter struct {
	stream *Stream
	from   io.Reader
	rest   []byte // the beginning of a line that the next batch continues
	line   int64  // the number of the next line
	ended  bool
}

// next returns the next batch, or nil at the end.
func (l *splitter) next() *batch {
	if l.ended {
		return nil
	}
	var b *batch
	select {
	case b = <-l.stream.free:
	case <-l.stream.quit:
		return nil
	}
	if b == nil {
		b = newBatch(batchSize)
	}
	b.text = append(b.text[:0], l.rest...)
	b.first, b.long = l.line, false
	l.rest = l.rest[:0]
	for scanned := 0; ; {
		if len(b.text) == cap(b.text) {
			b.text = append(b.text, 0)[:len(b.text)] // for a long line
		}
		n, err := l.from.Read(b.text[len(b.text):cap(b.text)])
		b.text = b.text[:len(b.text)+n]
		if err != nil {
			return l.end(b, err)
		}
		if i := bytes.LastIndexByte(b.text[scanned:], '\n'); i >= 0 && len(b.text) > batchSize/2 {
			return l.cut(b, scanned+i+1)
		} else if i < 0 {
			scanned = len(b.text)
		}
		if scanned > l.stream.options.MaxLine {
			return l.skip(b)
		}
	}
}

// cut leaves what follows the last line break to the next batch.
func (l *splitter) cut(b *batch, end int) *batch {
	l.rest = append(l.rest, b.text[end:]...)
	b.text = b.text[:end]
	l.line += int64(bytes.Count(b.text, []byte{'\n'}))
	return b
}

// end is the last batch: err is io.EOF, or why the log ends early.
func (l *splitter) end(b *batch, err error) *batch {
	l.ended = true
	nothing := len(b.text) == 0
	switch {
	case errors.Is(err, io.EOF):
	case nothing && l.line == 1:
		l.stream.err = fmt.Errorf("read log: %w", err)
	default:
		l.stream.truncated = err.Error()
	}
	if nothing {
		return nil
	}
	return b
}

// skip reads on to the end of a line that is too long, of which b has the beginning.
func (l *splitter) skip(b *batch) *batch {
	b.long = true
	l.line++
	keep := min(len(b.text), 4*maxShown)
	buffer := b.text[keep:cap(b.text)]
	for {
		n, err := l.from.Read(buffer)
		if i := bytes.IndexByte(buffer[:n], '\n'); i >= 0 {
			l.rest = append(l.rest, buffer[i+1:n]...)
			if err == nil {
				break
			}
		}
		if err != nil {
			l.end(b, err)
			break
		}
	}
	b.text = b.text[:keep]
	return b
}
