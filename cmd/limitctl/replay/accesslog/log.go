package accesslog

import (
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
	Error string `json:"error,omitempty"` // why it could not be read
	Stats
}

type file struct {
	File
	start  int64 // the time of its first records; 0 for a pipe, which cannot be read twice
	piped  bool
	in     io.ReadCloser
	stream *Stream

	head *Record
	key  int64 // by which head is merged: see [file.follow]
	odd  int
}

// Open opens the files of patterns as of [filepath.Glob]; "-" is Options.Stdin. A file
// that cannot be read or whose format is unknown is reported by [Log.Files], unless no
// file can be read: then that is an error, as is a pattern without a file.
func Open(patterns []string, options *Options) (*Log, error) {
	l := &Log{options: *cmp.Or(options, new(Options))}
	paths, err := expand(patterns)
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		f := &file{File: File{Path: path}}
		if path != "-" {
			f.fail(f.glance(&l.options))
		} else if l.options.Stdin == nil {
			return nil, errors.New(`open log: "-" stands for the standard input, which is not available here: ` +
				"write the name of a file")
		}
		l.files = append(l.files, f)
	}
	slices.SortStableFunc(l.files, func(a, b *file) int { return cmp.Compare(a.start, b.start) })
	if err := l.Err(); err != nil {
		return nil, err
	}
	return l, nil
}

// Piped reports whether a file, other than Options.Stdin, is a pipe or a device, which cannot be
// read twice.
func (l *Log) Piped() bool {
	return slices.ContainsFunc(l.files, func(f *file) bool { return f.piped })
}

// expand returns the files of patterns, each once.
func expand(patterns []string) (paths []string, err error) {
	if len(patterns) == 0 {
		return nil, errors.New("open log: no file: write the names of log files, or - for the standard input")
	}
	for _, pattern := range patterns {
		found, err := filepath.Glob(pattern)
		if _, missing := os.Stat(pattern); missing == nil || pattern == "-" {
			found, err = []string{pattern}, nil
		}
		switch {
		case err != nil:
			return nil, fmt.Errorf("open log: %q: %w", pattern, err)
		case len(found) == 0:
			return nil, fmt.Errorf("open log: %q matches no file", pattern)
		}
		for _, path := range found {
			if !slices.Contains(paths, path) {
				paths = append(paths, path)
			}
		}
	}
	return paths, nil
}

// glance finds the time of the first records of a file. Times that are more
// than a day before the median of some records are wrong, and do not matter.
func (f *file) glance(options *Options) error {
	info, err := os.Stat(f.Path)
	switch {
	case err != nil:
		return errors.Unwrap(err)
	case info.IsDir():
		return errors.New("is a folder: write the names of files in it, such as folder/*.log")
	case !info.Mode().IsRegular():
		f.piped = true
		return nil
	}
	in, err := os.Open(f.Path)
	if err != nil {
		return errors.Unwrap(err)
	}
	defer in.Close()
	s := NewStream(in, options)
	defer s.Close()
	var times []int64
	for r := s.Next(); r != nil && len(times) < glanceRecords; r = s.Next() {
		times = append(times, r.Time)
	}
	if len(times) == 0 {
		return s.Err()
	}
	slices.Sort(times)
	first, _ := slices.BinarySearch(times, times[len(times)/2]-oddJump)
	f.start = times[first]
	return nil
}

func (f *file) fail(err error) {
	if err != nil {
		f.Error = fmt.Sprintf("%s: %v", f.Path, err)
	}
}

func (f *file) begin(options *Options) {
	if f.Error != "" {
		return
	}
	from := options.Stdin
	if f.Path != "-" {
		in, err := os.Open(f.Path)
		if err != nil {
			f.fail(errors.Unwrap(err))
			return
		}
		f.in, from = in, in
	}
	f.stream = NewStream(from, options)
	f.key = f.start
	f.advance()
}

func (f *file) advance() {
	if f.head = f.stream.Next(); f.head != nil {
		f.follow(f.head.Time)
		return
	}
	f.fail(f.stream.Err())
	f.end()
}

// end releases what the file holds.
func (f *file) end() {
	if f.stream != nil {
		f.stream.Close()
	}
	if f.in != nil {
		f.in.Close()
	}
}

const (
	oddJump       = 24 * 3600 * second
	oddRun        = 16
	glanceRecords = 50
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

// Next returns the next record, or nil at the end.
func (l *Log) Next() *Record {
	if l.last != nil {
		if l.last.advance(); l.last.head == nil {
			l.open = slices.DeleteFunc(l.open, func(f *file) bool { return f == l.last })
		}
	}
	for {
		l.last = nil
		for _, f := range l.open {
			if l.last == nil || f.key < l.last.key {
				l.last = f
			}
		}
		if l.begun < len(l.files) && (l.last == nil || l.last.key >= l.files[l.begun].start) {
			f := l.files[l.begun]
			l.begun++
			if f.begin(&l.options); f.head != nil {
				l.open = append(l.open, f)
			}
			continue
		}
		if l.last == nil {
			return nil
		}
		return l.last.head
	}
}

// Err returns why no file could be read; nil if one was read.
func (l *Log) Err() error {
	var errs []error
	for _, f := range l.files {
		if f.Error == "" {
			return nil
		}
		errs = append(errs, errors.New(f.Error))
	}
	return errors.Join(errs...)
}

// Files returns what was read of each file until now, in the order of their times.
func (l *Log) Files() []File {
	files := make([]File, len(l.files))
	for i, f := range l.files {
		if f.stream != nil {
			f.Stats = f.stream.Stats()
		}
		files[i] = f.File
	}
	return files
}

// Stats returns the sum over all files. Samples are those of the first files that have
// some.
func (l *Log) Stats() Stats {
	var sum Stats
	for _, f := range l.Files() {
		sum.add(&f.Stats)
	}
	return sum
}

// Close ends all goroutines and closes the files. It does not close Options.Stdin.
func (l *Log) Close() {
	for _, f := range l.files {
		f.end()
	}
}
