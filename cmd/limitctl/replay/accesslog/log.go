package accesslog

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// A Log is the records of several files as one log, merged by their times. So rotated
// files may be given in any order, and the logs of several servers together. A Log is
// for one goroutine.
type Log struct {
	options Options
	files   []*file // in the order of their first records
	begun   int     // how many of them are open, or have ended
	open    []*file
	last    *file // whose record Next has returned
}

// A File is what was read of one file.
type File struct {
	Path  string `json:"path"`
	Size  int64  `json:"size"`            // bytes; 0 if it is not known
	Error string `json:"error,omitempty"` // why it could not be read
	Stats
}

type file struct {
	path   string
	size   int64
	pipe   bool  // whether its size is not known
	start  int64 // the time of its first records
	closer io.Closer
	stream *Stream
	err    error

	head *Record
	key  int64 // by which head is merged: see [file.follow]
	odd  int
}

// Open opens the files of patterns as of [filepath.Glob]; "-" is Options.Stdin. A file
// that cannot be read or whose format is unknown is reported by [Log.Files], unless no
// file can be read: then that is an error, as is a pattern without a file.
func Open(patterns []string, options *Options) (*Log, error) {
	l := &Log{options: options.withDefaults()}
	paths, err := expand(patterns)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, path := range paths {
		f := &file{path: path}
		if path == "-" {
			if l.options.Stdin == nil {
				return nil, errors.New("open log: \"-\" stands for the standard input, which is not available here: write the name of a file")
			}
			f.pipe = true
			f.begin(l.options.Stdin, &l.options)
			if f.start = f.key; f.head == nil {
				f.err = f.stream.Err()
			}
		} else {
			f.start, f.size, f.err = glance(path, &l.options)
			f.pipe = f.err == nil && !regular(path)
		}
		if f.err != nil {
			f.err = fmt.Errorf("%s: %w", path, f.err)
			errs = append(errs, f.err)
		}
		l.files = append(l.files, f)
	}
	if len(errs) == len(paths) {
		return nil, errors.Join(errs...)
	}
	slices.SortStableFunc(l.files, func(a, b *file) int { return cmp.Compare(a.start, b.start) })
	return l, nil
}

// expand returns the files of patterns, each once.
func expand(patterns []string) (paths []string, err error) {
	if len(patterns) == 0 {
		return nil, errors.New("open log: no file: write the names of log files, or - for the standard input")
	}
	for _, pattern := range patterns {
		found := []string{pattern}
		if _, err := os.Stat(pattern); err != nil && pattern != "-" {
			if found, err = filepath.Glob(pattern); err != nil {
				return nil, fmt.Errorf("open log: %q: %w", pattern, err)
			}
			if len(found) == 0 {
				return nil, fmt.Errorf("open log: %q matches no file", pattern)
			}
		}
		for _, path := range found {
			if !slices.Contains(paths, path) {
				paths = append(paths, path)
			}
		}
	}
	return paths, nil
}

func regular(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// glanceSize is how much of a file is read to find when it begins.
const glanceSize = 1 << 18

// glance returns the time of a file's first records, and its size. Times that are more
// than a day before the median of some records are wrong, and do not matter.
func glance(path string, options *Options) (start, size int64, err error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return 0, 0, errors.Unwrap(err)
	case info.IsDir():
		return 0, 0, errors.New("is a folder: write the names of files in it, such as folder/*.log")
	case !info.Mode().IsRegular():
		return 0, 0, nil // a pipe cannot be read twice
	}
	in, err := os.Open(path)
	if err != nil {
		return 0, 0, errors.Unwrap(err)
	}
	defer in.Close()
	text, release, err := decompress(in)
	if err != nil {
		return 0, 0, err
	}
	defer release()
	head := make([]byte, glanceSize)
	n, err := io.ReadFull(bufio.NewReader(text), head)
	if n == 0 && err != io.EOF {
		return 0, 0, err
	}
	lines := firstLines(head[:n], detectLines)
	if n == glanceSize && len(lines) > 1 && len(lines) < detectLines {
		lines = lines[:len(lines)-1] // the last one may be a part
	}
	if len(lines) == 0 || n == glanceSize && len(lines) == 1 {
		return 0, info.Size(), nil
	}
	f := options.Format
	if f == nil {
		if f, err = Detect(lines); err != nil {
			return 0, 0, err
		}
	}
	var times []int64
	var r Record
	for _, line := range lines {
		if f.Parse(line, &r) == nil {
			times = append(times, r.Time)
		}
	}
	if len(times) == 0 {
		return 0, info.Size(), nil
	}
	slices.Sort(times)
	median := times[len(times)/2]
	first, _ := slices.BinarySearch(times, median-oddJump)
	return times[first], info.Size(), nil
}

// begin opens the stream of a file, and reads its first record.
func (f *file) begin(r io.Reader, options *Options) {
	f.stream = NewStream(r, options)
	f.key = f.start
	f.advance()
}

// advance reads the next record.
func (f *file) advance() {
	if f.head = f.stream.Next(); f.head != nil {
		f.follow(f.head.Time)
		return
	}
	if err := f.stream.Err(); err != nil {
		f.err = fmt.Errorf("%s: %w", f.path, err)
	}
	f.end()
}

// end releases what the file holds.
func (f *file) end() {
	if f.stream != nil {
		f.stream.Close()
	}
	if f.closer != nil {
		f.closer.Close()
		f.closer = nil
	}
}

const (
	oddJump = 24 * 3600 * second
	oddRun  = 16
)

// follow sets the key by which a record is merged: its time. A time far from the one
// before may be wrong, and one wrong time must not hold up the records behind it. It is
// believed once several records in a row agree.
func (f *file) follow(t int64) {
	if d := t - f.key; f.key != 0 && (d > oddJump || d < -oddJump) && f.odd < oddRun {
		f.odd++
		return
	}
	f.key, f.odd = t, 0
}

// Next returns the next record, or nil at the end. It is valid until the next call.
func (l *Log) Next() *Record {
	if l.last != nil {
		l.last.advance()
		if l.last.head == nil {
			l.open = slices.DeleteFunc(l.open, func(f *file) bool { return f == l.last })
		}
		l.last = nil
	}
	for {
		var least *file
		for _, f := range l.open {
			if least == nil || f.key < least.key {
				least = f
			}
		}
		if l.begun == len(l.files) || least != nil && least.key < l.files[l.begun].start {
			if least == nil {
				return nil
			}
			l.last = least
			return least.head
		}
		l.beginNext()
	}
}

// beginNext opens the file whose turn has come.
func (l *Log) beginNext() {
	f := l.files[l.begun]
	l.begun++
	switch {
	case f.err != nil:
		return
	case f.stream == nil:
		in, err := os.Open(f.path)
		if err != nil {
			f.err = fmt.Errorf("%s: %w", f.path, errors.Unwrap(err))
			return
		}
		f.closer = in
		f.begin(in, &l.options)
	}
	if f.head != nil {
		l.open = append(l.open, f)
	}
}

// Files returns what was read of each file until now, in the order of their times.
func (l *Log) Files() []File {
	files := make([]File, len(l.files))
	for i, f := range l.files {
		files[i] = File{Path: f.path, Size: f.size}
		if f.stream != nil {
			files[i].Stats = f.stream.Stats()
		}
		if f.err != nil {
			files[i].Error = f.err.Error()
		}
	}
	return files
}

// Stats returns the sum over all files. Samples are those of the first files that have
// some.
func (l *Log) Stats() Stats {
	var sum Stats
	for _, f := range l.files {
		if f.stream != nil {
			stats := f.stream.Stats()
			sum.add(&stats)
		}
	}
	return sum
}

// Size returns the sum of the sizes of all files in bytes, to which Stats.Bytes grows;
// 0 if one is not known.
func (l *Log) Size() int64 {
	sum := int64(0)
	for _, f := range l.files {
		if f.pipe {
			return 0
		}
		sum += f.size
	}
	return sum
}

// Close ends all goroutines and closes the files. It does not close Options.Stdin.
func (l *Log) Close() {
	for _, f := range l.files {
		f.end()
	}
}
