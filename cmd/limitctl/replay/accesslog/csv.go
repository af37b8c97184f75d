package accesslog

import (
	"encoding/csv"
	"strings"
)

// csvFormat returns the format of a line with the names of columns, separated by commas or tabs,
// such as Cloudflare Logpush writes with a batch_prefix. The names are those of JSON lines. It
// returns nil for any other line, and if a time, a client or a path is missing.
func csvFormat(line string) *Format {
	comma := ','
	if strings.Contains(line, "\t") {
		comma = '\t'
	}
	columns := strings.Split(line, string(comma))
	names, seen := make([]name, len(columns)), [targets]bool{}
	for i, column := range columns {
		if !isWord(column) { // first, since this is asked of each line
			return nil
		}
		if n := logFormatNames[column]; n.rank > 0 {
			names[i], seen[n.target] = n, true
		}
	}
	if !seen[toTime] || !seen[toClient] || !seen[toPath] {
		return nil
	}
	return &Format{name: "csv", headed: true, cut: func(line string, v *values) error {
		in := csv.NewReader(strings.NewReader(line))
		in.Comma, in.FieldsPerRecord = comma, len(columns)
		parts, err := in.Read()
		if err != nil {
			return errForm
		}
		for i, part := range parts {
			if names[i].rank > 0 {
				v.set(names[i], part)
			}
		}
		return nil
	}}
}
