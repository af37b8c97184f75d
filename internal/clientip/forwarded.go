package clientip

import (
	"net/http"
	"strings"
)

// A chain reads the entries of a header that each proxy appends to, from right
// to left. It splits lazily, because a client can send a megabyte of entries.
type chain struct {
	lines []string // not yet read
	line  string   // the unread part of the line after them
	more  bool     // whether line has an entry
	nodes bool     // the header is Forwarded (RFC 7239): read the for parameters
}

// next returns the next entry. An empty entry is "".
func (c *chain) next() (entry string, ok bool) {
	if !c.more {
		last := len(c.lines) - 1
		if last < 0 {
			return "", false
		}
		c.line, c.lines = c.lines[last], c.lines[:last]
	}
	comma := strings.LastIndexByte(c.line, ',')
	if c.nodes {
		comma = lastUnquoted(c.line, ',')
	}
	entry = c.line[comma+1:]
	if c.more = comma >= 0; c.more {
		c.line = c.line[:comma]
	}
	if c.nodes {
		entry = node(entry)
	}
	return trimBlanks(entry), true
}

// lastUnquoted returns the index of the last separator outside quoted strings, or -1. It reads from
// the right, so that a quote that a client left open cannot hide an entry that a proxy appended.
func lastUnquoted(s string, separator byte) int {
	quoted := false
	for i := len(s) - 1; i >= 0; i-- {
		switch {
		case s[i] == separator && !quoted:
			return i
		case s[i] == '"':
			// An opening quote follows "=" and so never looks escaped.
			quoted = !quoted || i > 0 && s[i-1] == '\\'
		}
	}
	return -1
}

// node returns the for parameter of an element of Forwarded, or "" unless the element has exactly
// one.
func node(element string) string {
	found, several := "", false
	for more := true; more; {
		i := lastUnquoted(element, ';')
		name, value, _ := strings.Cut(element[i+1:], "=")
		if strings.EqualFold(trimBlanks(name), "for") {
			if several {
				return ""
			}
			found, several = unquote(trimBlanks(value)), true
		}
		if more = i >= 0; more {
			element = element[:i]
		}
	}
	return found
}

func unquote(s string) string {
	if len(s) < 2 || len(s) > maxAddress || s[0] != '"' || s[len(s)-1] != '"' {
		return s
	}
	s = s[1 : len(s)-1]
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	text := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
		}
		text = append(text, s[i])
	}
	return string(text)
}

func trimBlanks(s string) string { return strings.Trim(s, " \t") }

// Forwarded returns the name of a header that proxies write, and clients forge, if a request has
// one, or "".
func Forwarded(header http.Header) string {
	for _, name := range [...]string{"X-Forwarded-For", "Forwarded", "X-Real-Ip", "Cf-Connecting-Ip", "True-Client-Ip"} {
		if len(header[name]) > 0 {
			return name
		}
	}
	return ""
}
