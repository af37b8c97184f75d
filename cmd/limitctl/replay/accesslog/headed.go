package accesslog

import (
	"encoding/csv"
	"net/url"
	"slices"
	"strings"
)

// isDirective reports whether a line is about the log, such as "#Version: 1.0".
func isDirective(line string) bool {
	if !strings.HasPrefix(line, "#") {
		return false
	}
	word, _, found := strings.Cut(line[1:], ":")
	return found && isWord(word)
}

// w3cFormat returns the W3C extended log format, which IIS and CloudFront write, with the fields
// that a #Fields directive names: www.w3.org/TR/WD-logfile.html. Its times are in UTC. It returns
// nil for any other line, and if a date, a time or a path is missing.
func w3cFormat(line string) *Format {
	list, found := strings.CutPrefix(line, "#Fields:")
	if !found {
		return nil
	}
	fields := strings.Fields(strings.ToLower(list))
	for _, needed := range []string{"date", "time", "cs-uri-stem"} {
		if !slices.Contains(fields, needed) {
			return nil
		}
	}
	return &Format{name: "w3c", headed: true, cut: func(line string, v *values) error {
		parts := strings.FieldsFunc(line, func(c rune) bool { return c == '\t' || c == ' ' })
		if len(parts) != len(fields) {
			return errForm
		}
		var date, clock string
		for i, field := range fields {
			switch n := logFormatNames[field]; {
			case field == "date":
				date = parts[i]
			case field == "time":
				clock = parts[i]
			case n.target == toAgent: // without spaces: IIS writes a plus, and CloudFront %20
				v.set(n, plainAgent(parts[i]))
			case n.rank > 0:
				v.set(n, parts[i])
			}
		}
		v.set(name{target: toTime, rank: 1}, date+" "+clock)
		return nil
	}}
}

func plainAgent(text string) string {
	if plain, err := url.PathUnescape(text); err == nil {
		text = plain
	}
	return strings.ReplaceAll(text, "+", " ")
}

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
