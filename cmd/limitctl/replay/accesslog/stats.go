package accesslog

// Stats counts what was read.
type Stats struct {
	Lines     int64 `json:"lines"`      // without empty ones
	BadLines  int64 `json:"bad_lines"`  // that no format reads, and too long ones
	LongLines int64 `json:"long_lines"` // of the bad ones, those longer than Options.MaxLine
	Bytes     int64 `json:"bytes"`      // as read from the files, compressed or not

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

// maxSamples is how many bad lines are kept.
const maxSamples = 10

// add adds the counts of one batch, or of a file.
func (s *Stats) add(o *Stats) {
	s.Lines += o.Lines
	s.BadLines += o.BadLines
	s.LongLines += o.LongLines
	s.Bytes += o.Bytes
	for name, n := range o.Formats {
		if s.Formats == nil {
			s.Formats = make(map[string]int64)
		}
		s.Formats[name] += n
	}
	if room := maxSamples - len(s.Samples); room > 0 {
		s.Samples = append(s.Samples, o.Samples[:min(room, len(o.Samples))]...)
	}
}
