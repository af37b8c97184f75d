package accesslog

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/routelimit/limit/cmd/limitctl/internal/words"
)

// Options configures how a log is read. Nil and the zero Options are ready to use.
type Options struct {
	// Format is that of all lines. Nil means that the format of each file is found from its
	// first 256 KiB in which any format reads a line. Lines of other formats are then bad.
	Format *Format

	// Stdin is read for the path "-". Nil means that "-" is an error.
	Stdin io.Reader
}

const (
	maxLine       = 1 << 20 // bytes; longer lines are bad
	batchSize     = 1 << 18
	maxUnknown    = 100_000   // lines, before one that a format reads
	maxSamples    = 10        // bad lines that are kept
	maxZstdWindow = 128 << 20 // of zstd --ultra and --long: bounds the memory that a log may ask for
)

// Stats counts what was read.
type Stats struct {
	Lines    int64 `json:"lines"`     // without empty ones
	BadLines int64 `json:"bad_lines"` // that no format reads, and those of 1 MiB or more

	// Formats counts the lines that each format has read.
	Formats map[string]int64 `json:"formats"`

	// Samples are the first bad lines.
	Samples []BadLine `json:"samples"`

	// Truncated says why the log ended early, such as a compressed file without its
	// end; "" if it did not.
	Truncated string `json:"truncated,omitempty"`
}

// A BadLine is a line that no format reads.
type BadLine struct {
	Line    int64  `json:"line"`    // from 1, empty lines included
	Problem string `json:"problem"` // by the format of the log
	Text    string `json:"text"`    // quoted and shortened, with escapes for all but printable ASCII
}

// add adds the counts of a batch, or of a file.
func (s *Stats) add(o *Stats) {
	s.Lines += o.Lines
	s.BadLines += o.BadLines
	for name, n := range o.Formats {
		if s.Formats == nil {
			s.Formats = make(map[string]int64)
		}
		s.Formats[name] += n
	}
	s.Samples = append(s.Samples, o.Samples[:min(maxSamples-len(s.Samples), len(o.Samples))]...)
}

// A Stream is the records of one log, in the order of its lines. Several goroutines
// parse ahead of the caller. They hold a few batches of 256 KiB of text and end with
// the log, or at Close. A Stream is for one goroutine.
type Stream struct {
	format  *Format // nil until it is found
	batches chan *batch
	quit    chan struct{}
	close   sync.Once

	records []Record // of the current batch, from the next one on
	stats   Stats

	// Set before batches is closed.
	err       error
	truncated string
}

// NewStream returns the records of r, which may be compressed with gzip or zstd.
func NewStream(r io.Reader, options *Options) *Stream {
	options = cmp.Or(options, new(Options))
	s := &Stream{format: options.Format, batches: make(chan *batch, runtime.GOMAXPROCS(0)), quit: make(chan struct{})}
	go s.split(r)
	return s
}

// Next returns the next record, or nil at the end.
func (s *Stream) Next() *Record {
	for len(s.records) == 0 {
		b, ok := <-s.batches
		if !ok {
			s.stats.Truncated = s.truncated
			return nil
		}
		<-b.done
		s.stats.add(&b.stats)
		s.records = b.records
	}
	r := &s.records[0]
	s.records = s.records[1:]
	return r
}

// Stats returns what was read until now. After the end it is complete.
func (s *Stream) Stats() Stats { return s.stats }

// Err returns why the log could not be read, once Next has returned nil: an unknown
// format, or an error of the reader before the first line. A log that ends early is not an
// error: see [Stats].Truncated.
func (s *Stream) Err() error { return s.err }

// Close ends the goroutines of the stream, the one that reads after a Read that has
// begun. It does not close the reader.
func (s *Stream) Close() { s.close.Do(func() { close(s.quit) }) }

// split cuts the log into batches, and parses each in a goroutine.
func (s *Stream) split(r io.Reader) {
	defer close(s.batches)
	text, err := decompress(r)
	if err != nil {
		s.err = fmt.Errorf("read log: %w", err)
		return
	}
	in := bufio.NewReaderSize(text, maxLine)
	if mark, _ := in.Peek(3); string(mark) == "\ufeff" { // of programs on Windows
		_, _ = in.Discard(3)
	}
	parts := make(joiner)
	for number := int64(1); err == nil; {
		b := &batch{first: number, done: make(chan struct{})}
		err = b.read(in, parts)
		number += int64(len(b.lines))
		if s.format == nil {
			var problem error
			s.format, problem = b.detect()
			if s.err = cmp.Or(s.err, problem); s.format == nil && s.err != nil && number > maxUnknown {
				return
			}
		}
		select {
		case s.batches <- b:
			go b.parse(s.format)
		case <-s.quit:
			return
		}
		if s.format = b.named(s.format); s.format != nil {
			s.err = nil
		}
		switch {
		case err == nil, errors.Is(err, io.EOF):
		case number == 1:
			s.err = fmt.Errorf("read log: %w", err)
		default:
			s.truncated = err.Error()
		}
	}
}

// decompress returns the text of a log that may be compressed, which its first bytes
// say. The decompressors start no goroutines, so nothing needs to be closed.
func decompress(r io.Reader) (io.Reader, error) {
	in := bufio.NewReaderSize(r, 1<<16)
	magic, err := in.Peek(4)
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		return gzip.NewReader(in)
	case bytes.Equal(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		return zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxZstdWindow))
	case err != nil && err != io.EOF:
		return nil, err
	}
	return in, nil
}

// A batch is some lines of a log and the records made of them.
type batch struct {
	first   int64    // the number of the first line
	lines   []string // without line breaks; longer ones are cut to maxLine bytes
	records []Record
	stats   Stats
	done    chan struct{} // closed when the records are ready
}

// read reads the lines of the batch, and joins those that were split. The error is that of the
// reader.
func (b *batch) read(in *bufio.Reader, parts joiner) error {
	var text strings.Builder // of all lines, which are parts of it
	var ends []int
	text.Grow(batchSize + batchSize/8)
	var err error
	for text.Len()+len(ends) < batchSize && err == nil {
		var line []byte
		if line, err = in.ReadSlice('\n'); len(line) > 0 {
			if !errors.Is(err, bufio.ErrBufferFull) {
				line = bytes.TrimRight(line, "\r\n")
			}
			text.Write(line)
			ends = append(ends, text.Len())
		}
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = in.ReadSlice('\n')
		}
	}
	begin := 0
	b.lines = make([]string, len(ends))
	for i, end := range ends {
		if b.lines[i] = text.String()[begin:end]; end-begin < maxLine {
			b.lines[i] = parts.join(b.lines[i])
		}
		begin = end
	}
	if err != nil {
		b.lines = slices.AppendSeq(b.lines, maps.Values(parts)) // those that have no end
	}
	return err
}

// detect returns the format of the lines before one that names fields. If there is none, the error
// describes the lines; it is nil if all are empty.
func (b *batch) detect() (*Format, error) {
	lines := make([]string, 0, len(b.lines))
	for _, line := range b.lines {
		if namedBy(line) != nil {
			break
		}
		if line != "" && len(line) < maxLine {
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		return nil, nil
	}
	return detect(lines)
}

// named returns the format of the last line of the batch that names the fields of those behind
// it, or the current one.
func (b *batch) named(current *Format) *Format {
	if current.mayChange() {
		for _, line := range slices.Backward(b.lines) {
			if format := namedBy(line); format != nil {
				return format
			}
		}
	}
	return current
}

func (b *batch) parse(current *Format) {
	defer close(b.done)
	b.records = make([]Record, 0, len(b.lines))
	b.stats.Formats = make(map[string]int64)
	var v values
	for i, line := range b.lines {
		if line == "" {
			continue
		}
		if current.mayChange() {
			if named := namedBy(line); named != nil || isDirective(line) {
				current = cmp.Or(named, current)
				continue
			}
		}
		b.stats.Lines++
		if len(line) >= maxLine {
			b.bad(i, "the line is too long")
			continue
		}
		if current == nil {
			b.bad(i, "no known log format reads it")
			continue
		}
		n := len(b.records)
		if err := current.read(line, &v, &b.records[:n+1][n]); err != nil {
			b.bad(i, err.Error())
			continue
		}
		b.stats.Formats[current.name]++
		b.records = b.records[:n+1]
	}
}

func (b *batch) bad(i int, problem string) {
	b.stats.BadLines++
	if len(b.stats.Samples) < maxSamples {
		sample := BadLine{Line: b.first + int64(i), Problem: problem, Text: words.Quote(b.lines[i])}
		b.stats.Samples = append(b.stats.Samples, sample)
	}
}
