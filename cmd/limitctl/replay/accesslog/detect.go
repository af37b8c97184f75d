package accesslog

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// A FormatError says that no format reads the first lines of a log.
type FormatError struct {
	Tried []string // the names of the formats
	Line  string   // the first line, shortened and with escaped control characters
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("no known log format reads this log: tried %s; name the format, or write an nginx log_format or the fields of JSON lines; the first line is %s",
		strings.Join(e.Tried, ", "), e.Line)
}

// Detect returns the format that reads the most of lines; of several, the first of
// [Formats]. If none reads any line, the error is a [*FormatError].
func Detect(lines [][]byte) (*Format, error) {
	var best *Format
	most := 0
	var r Record
	for _, f := range formats {
		read := 0
		for _, line := range lines {
			if f.Parse(bytes.Clone(line), &r) == nil {
				read++
			}
		}
		if read > most {
			best, most = f, read
		}
	}
	if best != nil {
		return best, nil
	}
	err := &FormatError{}
	for _, f := range formats {
		err.Tried = append(err.Tried, f.name)
	}
	if len(lines) > 0 {
		err.Line = show(lines[0])
	}
	return nil, err
}

// maxShown is how many bytes of a line are shown.
const maxShown = 200

// show returns a line that is safe to print: quoted, with escapes for all but
// printable ASCII, and not too long.
func show(line []byte) string {
	if len(line) > maxShown {
		return strconv.QuoteToASCII(string(line[:maxShown])) + "…"
	}
	return strconv.QuoteToASCII(string(line))
}
