package accesslog

import (
	"strings"

	"github.com/tidwall/gjson"
)

// unwrapped returns a line without what a collector of logs has written around it: Kubernetes
// (CRI), Docker's driver json-file, docker compose, syslog and journald. Any other line is
// returned as it is.
func unwrapped(line string) string {
	if _, text, _, ok := piece(line); ok {
		return text
	}
	// docker compose shows the service, spaces, and the text.
	if name, text, found := strings.Cut(line, " | "); found && isWord(strings.TrimRight(name, " ")) {
		return text
	}
	if text, ok := syslogLine(line); ok {
		return text
	}
	if date, text, found := strings.Cut(line, " "); found && startsWithDate(date) { // docker logs -t
		return text
	}
	return line
}

// dockerPiece is where Docker splits a line, in bytes. In JSON, invalid UTF-8 is longer.
const dockerPiece = 16 << 10

// piece cuts a line of a container runtime, which may go on in the next line of the stream. In
// Kubernetes, it has the time, the stream, F or P for parts, and the text. An object of Docker's
// json-file goes on if its text is long and has no line break. Fluent Bit writes such objects
// without any line breaks.
func piece(line string) (stream, text string, goesOn, ok bool) {
	if strings.HasPrefix(line, `{"log":"`) { // first, since this is asked of each line of any log
		stream, text = gjson.Get(line, "stream").Str, gjson.Get(line, "log").Str
		end := strings.TrimRight(text, "\r\n")
		return stream, end, len(end) == len(text) && len(text) >= dockerPiece, isStream(stream)
	}
	date, rest, _ := strings.Cut(line, " ")
	if !startsWithDate(date) {
		return "", "", false, false
	}
	stream, rest, _ = strings.Cut(rest, " ")
	tag, text, found := strings.Cut(rest, " ")
	if !found || !isStream(stream) || tag != "F" && tag != "P" {
		return "", "", false, false
	}
	return stream, text, tag == "P", true
}

func isStream(s string) bool { return s == "stdout" || s == "stderr" }

// syslogLine cuts a line of syslog or journald: a time as in RFC 3164 or RFC 3339, a host, a
// tag such as nginx[123], a colon, and the text; or one of RFC 5424. A priority may stand
// before it.
func syslogLine(line string) (text string, ok bool) {
	rest := line
	if strings.HasPrefix(rest, "<") {
		end := strings.IndexByte(rest, '>')
		if end < 2 || end > 4 {
			return "", false
		}
		rest = rest[end+1:]
		if after, found := strings.CutPrefix(rest, "1 "); found {
			return cutStructured(after)
		}
	}
	switch {
	case len(rest) > 16 && rest[3] == ' ' && rest[9] == ':' && rest[12] == ':' && rest[15] == ' ':
		rest = rest[16:] // Oct 10 13:55:36
	case startsWithDate(rest):
		_, rest, _ = strings.Cut(rest, " ")
	default:
		return "", false
	}
	host, rest, _ := strings.Cut(rest, " ")
	tag, text, found := strings.Cut(rest, ": ")
	tag, process, numbered := strings.Cut(tag, "[")
	return text, found && isWord(host) && isWord(tag) && (!numbered || strings.HasSuffix(process, "]") && isWord(process[:len(process)-1]))
}

// cutStructured cuts a line of RFC 5424 behind its version: time, host, program, process,
// message, structured data, and the text.
func cutStructured(rest string) (text string, ok bool) {
	for range 5 {
		if _, rest, ok = strings.Cut(rest, " "); !ok {
			return "", false
		}
	}
	if after, none := strings.CutPrefix(rest, "- "); none {
		return after, true
	}
	end := strings.Index(rest, "] ")
	if end < 0 || rest[0] != '[' {
		return "", false
	}
	return rest[end+2:], true
}

// startsWithDate reports whether s begins as a time of RFC 3339 does.
func startsWithDate(s string) bool { return len(s) > 19 && s[4] == '-' && s[7] == '-' && s[10] == 'T' }

// isWord reports whether s can be the name of a host, of a service or of a program.
func isWord(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:/-") == ""
}

// A joiner joins the lines that a container runtime has split: it has those that have begun, by
// their streams.
type joiner map[string]string

// join returns the line to read: "" if line goes on, or else the whole of it.
func (j joiner) join(line string) string {
	stream, text, goesOn, ok := piece(line)
	if !ok {
		return line
	}
	before := j[stream]
	if before == "" && !goesOn {
		return line
	}
	whole := before + text[:min(len(text), maxLine-len(before))]
	if goesOn {
		j[stream] = whole
		return ""
	}
	delete(j, stream)
	return whole
}
