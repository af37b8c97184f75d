package accesslog

import "bytes"

// A batch is some lines of a log and the records made of them.
type batch struct {
	text    []byte // whole lines
	first   int64  // the number of its first line
	long    bool   // whether the text is the beginning of a line that is too long
	records []Record
	stats   Stats
	done    chan struct{} // receives one value when the records are ready
}

func newBatch(size int) *batch {
	return &batch{text: make([]byte, 0, size), done: make(chan struct{}, 1)}
}

// next returns a record to fill.
func (b *batch) next() *Record {
	if n := len(b.records); n < cap(b.records) {
		b.records = b.records[:n+1]
	} else {
		b.records = append(b.records, Record{})
	}
	return &b.records[len(b.records)-1]
}

// parse makes the records. The formats in others are tried for lines that the first
// one does not read: logs that were joined, or whose format was changed.
func (b *batch) parse(f *Format, others []*Format, maxLine int) {
	b.records = b.records[:0]
	b.stats = Stats{Samples: b.stats.Samples[:0]}
	number := b.first
	if b.long {
		b.tooLong(number, b.text)
		return
	}
	current := f
	read := int64(0) // by current
	for rest := b.text; len(rest) > 0; number++ {
		line := rest
		if i := bytes.IndexByte(rest, '\n'); i >= 0 {
			line, rest = rest[:i], rest[i+1:]
		} else {
			rest = nil
		}
		line = bytes.TrimSuffix(line, []byte{'\r'})
		if len(line) == 0 {
			continue
		}
		if len(line) > maxLine {
			b.tooLong(number, line)
			continue
		}
		b.stats.Lines++
		r := b.next()
		err := current.Parse(line, r)
		if err == nil {
			read++
			continue
		}
		if found := another(line, r, current, others); found != nil {
			b.count(current, read)
			current, read = found, 1
			continue
		}
		b.records = b.records[:len(b.records)-1]
		b.bad(number, err.Error(), line)
	}
	b.count(current, read)
}

// another reads a line by one of formats, apart from one that has failed.
func another(line []byte, r *Record, failed *Format, formats []*Format) *Format {
	for _, f := range formats {
		if f != failed && f.Parse(line, r) == nil {
			return f
		}
	}
	return nil
}

func (b *batch) count(f *Format, n int64) {
	if n > 0 {
		if b.stats.Formats == nil {
			b.stats.Formats = make(map[string]int64, 1)
		}
		b.stats.Formats[f.name] += n
	}
}

func (b *batch) tooLong(number int64, line []byte) {
	b.stats.Lines++
	b.stats.LongLines++
	b.bad(number, "the line is too long", line)
}

func (b *batch) bad(number int64, problem string, line []byte) {
	b.stats.BadLines++
	if len(b.stats.Samples) < maxSamples {
		b.stats.Samples = append(b.stats.Samples, BadLine{Line: number, Problem: problem, Text: show(line)})
	}
}
