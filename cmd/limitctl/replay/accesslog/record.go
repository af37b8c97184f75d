package accesslog

import (
	"errors"
	"net"
	"strconv"
	"strings"
	"time"
)

// A Record is one request of an access log. A field that the line does not have, or has
// as "-", is empty. Fields are parts of the line: to keep one for long, clone it.
type Record struct {
	Time   int64 // microseconds since the Unix epoch; years 0 to 9999
	Status int   // of the response; 0 if the line has none
	Bytes  int64 // of the response; 0 if the line has none

	Client    string // an address without its port, or a host name
	Forwarded string // X-Forwarded-For; its last address is Client if the line has no other
	User      string
	Method    string // empty if the client sent no HTTP, such as TLS to a plain port
	Path      string // as sent, without the query
	Query     string // as sent, without the question mark
	UserAgent string
	Host      string

	// Fields has the headers and cookies of the line by their names in the text grammar of
	// package limit, such as "header X-Api-Key".
	Fields map[string]string
}

// What is wrong with a line.
var (
	errForm      = errors.New("does not have the form of the format")
	errNoTime    = errors.New("there is no time")
	errNoRequest = errors.New("there is no method, or no path")
	errTime      = errors.New("the time is not one of the format")
	errStatus    = errors.New("the status is not a number")
	errBytes     = errors.New("the size is not a number")
	errMore      = errors.New("more text follows the last field")
	errJSON      = errors.New("not a JSON object")
)

// A target is what a value in a line is for.
type target int

const (
	toTime target = iota
	toClient
	toPeer      // a client with its port, after other words
	toForwarded // X-Forwarded-For, whose last entry is the client: the proxy itself has written it
	toUser
	toMethod
	toPath // maybe with its query, or a URL
	toQuery
	toStatus
	toBytes
	toAgent
	toHost
	toRequest // a whole request line
	toField   // of Record.Fields
	targets
)

// A name says what its value is for.
type name struct {
	target target
	rank   uint8  // from 1; of several names for one target, the one with the lowest rank counts
	field  string // in Record.Fields, for toField
}

// values are the parts of a line by their targets. They may be used again for the next
// line, which often has the same time.
type values struct {
	text   [targets]string
	rank   [targets]uint8 // of the name; 0 where nothing was found
	fields map[string]string

	timeText string
	time     int64
}

// set keeps a value, unless one of a better name is known.
func (v *values) set(n name, text string) {
	switch {
	case text == "" || text == "-":
	case n.target == toField:
		if v.fields == nil {
			v.fields = make(map[string]string)
		}
		v.fields[n.field] = text
	case v.rank[n.target] == 0 || n.rank < v.rank[n.target]:
		v.text[n.target], v.rank[n.target] = text, n.rank
	}
}

func (v *values) record(r *Record) error {
	*r = Record{User: v.text[toUser], UserAgent: v.text[toAgent], Forwarded: v.text[toForwarded], Fields: v.fields}
	if v.text[toTime] == "" {
		return errNoTime
	}
	if text := v.text[toTime]; text != v.timeText {
		t, ok := parseTime(text)
		if !ok {
			return errTime
		}
		v.timeText, v.time = text, t
	}
	r.Time = v.time
	status, ok := number(v.text[toStatus])
	if r.Status = int(status); !ok || status > 999 {
		return errStatus
	}
	if r.Bytes, ok = number(v.text[toBytes]); !ok {
		return errBytes
	}
	r.setRequest(v.text[toRequest])
	if v.text[toMethod] != "" {
		r.Method = strings.TrimSpace(v.text[toMethod]) // Gin aligns it
	}
	if v.text[toPath] != "" {
		r.setTarget(v.text[toPath])
	}
	if r.Query == "" {
		r.Query = strings.TrimPrefix(v.text[toQuery], "?")
	}
	if v.text[toHost] != "" {
		r.Host = v.text[toHost]
	}
	r.Host = withoutPort(r.Host)
	return r.setClient(v)
}

func (r *Record) setClient(v *values) error {
	switch {
	case v.text[toClient] != "":
		r.Client = withoutPort(strings.TrimSpace(v.text[toClient]))
	case v.text[toPeer] != "":
		peer := v.text[toPeer][strings.LastIndexByte(v.text[toPeer], ' ')+1:]
		port := strings.LastIndexByte(peer, ':')
		if port <= 0 {
			return errForm
		}
		r.Client = strings.Trim(peer[:port], "[]")
	default:
		list := v.text[toForwarded]
		r.Client = withoutPort(strings.TrimSpace(list[strings.LastIndexByte(list, ',')+1:]))
	}
	if strings.Contains(r.Client, " ") {
		return errForm
	}
	return nil
}

// number reads digits. "" is 0, and so is the status of an HAProxy request without a
// response. HAProxy writes sizes of responses that go on with a plus.
func number(s string) (n int64, ok bool) {
	if s == "" || s == "-1" {
		return 0, true
	}
	unsigned, err := strconv.ParseUint(strings.TrimPrefix(s, "+"), 10, 63)
	return int64(unsigned), err == nil
}

// setRequest reads a request line. Clients also send what is no request, and servers
// log it: then method and path stay empty.
func (r *Record) setRequest(line string) {
	method, rest, ok := strings.Cut(line, " ")
	if !ok || len(method) > 32 || !isMethod(method) {
		return
	}
	if i := strings.LastIndexByte(rest, ' '); i >= 0 && strings.HasPrefix(rest[i+1:], "HTTP/") {
		rest = rest[:i]
	}
	r.Method = method
	r.setTarget(rest)
}

// isMethod reports whether s is a method: servers log methods of other letters too,
// but those are not routed.
func isMethod(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < 'A' || c > 'Z') && c != '-' && c != '_' {
			return false
		}
	}
	return s != "" && s[0] != '-'
}

// setTarget reads the target of a request: a path with a query, or a URL.
func (r *Record) setTarget(s string) {
	if scheme := strings.Index(s[:min(len(s), 10)], "://"); scheme > 0 && s[0] != '/' {
		rest := s[scheme+3:]
		end := strings.IndexAny(rest, "/?")
		if end < 0 {
			end = len(rest)
		}
		r.Host, s = rest[:end], rest[end:]
	}
	r.Path, r.Query, _ = strings.Cut(s, "?")
}

// withoutPort returns an address or a host without its port and brackets.
func withoutPort(s string) string {
	if !strings.Contains(s, ":") {
		return s
	}
	if host, _, err := net.SplitHostPort(s); err == nil {
		return host
	}
	return strings.Trim(s, "[]")
}

// unescape undoes the escapes of nginx and Apache: \x22, \", \\, \u0022 and the letters
// of C. What is no escape stays.
func unescape(s string) string {
	before, rest, found := strings.Cut(s, `\`)
	if !found {
		return s
	}
	var out []byte
	for found {
		out = append(out, before...)
		c, multibyte, after, err := strconv.UnquoteChar(`\`+rest, '"')
		switch {
		case err != nil:
			out, after = append(out, '\\'), rest
		case multibyte:
			out = append(out, string(c)...)
		default:
			out = append(out, byte(c))
		}
		before, rest, found = strings.Cut(after, `\`)
	}
	return string(append(out, before...))
}

const (
	second  = int64(1_000_000)         // in microseconds
	minTime = -62_167_219_200 * second // the year 0
	maxTime = 253_402_300_800 * second // the year 10000
)

// A time without a zone is UTC, such as that of HAProxy. [time.Parse] reads fractions of a
// second after a dot or a comma.
var (
	slashTimes = []string{"02/Jan/2006:15:04:05 -0700", "02/Jan/2006:15:04:05"}
	ginTimes   = []string{"2006/01/02 - 15:04:05"}
	isoTimes   = []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04:05Z0700",
		"2006-01-02 15:04:05", "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05 Z07:00", "2006-01-02 15:04:05 -0700"}
)

// parseTime returns the microseconds since the epoch of a time in the form of RFC 3339, in
// that of the common log format, or as a number of seconds, milliseconds, microseconds or
// nanoseconds, by its size.
func parseTime(s string) (micros int64, ok bool) {
	var layouts []string
	switch {
	case len(s) < 19:
	case s[2] == '/':
		layouts = slashTimes
	case s[4] == '-':
		layouts = isoTimes
	case s[4] == '/':
		layouts = ginTimes
	}
	for _, layout := range layouts {
		if t, err := time.Parse(layout, s); err == nil {
			micros = t.UnixMicro()
			return micros, micros >= minTime && micros < maxTime
		}
	}
	whole, fraction, _ := strings.Cut(s, ".")
	n, err := strconv.ParseInt(whole, 10, 64)
	switch {
	case err != nil || n < -1e11 || strings.Trim(fraction, "0123456789") != "":
		return 0, false
	case n < 1e11:
		micros, _ = strconv.ParseInt((fraction + "000000")[:6], 10, 64)
		n = n*second + micros
	case n < 1e14:
		n *= 1000
	case n >= 1e17:
		n /= 1000
	}
	return n, n >= minTime && n < maxTime
}
