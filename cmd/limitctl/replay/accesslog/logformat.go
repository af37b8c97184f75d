package accesslog

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
)

// A template is an nginx log_format: a text before the first variable, and variables
// with the text that follows each.
type template struct {
	prefix    string
	variables []variable
}

type variable struct {
	name  name // of rank 0 if no field is made of it
	after string
}

var (
	variablePattern = regexp.MustCompile(`\$(?:\w+|\{[^}]+\})`)
	quotedPattern   = regexp.MustCompile(`'([^']*)'|"([^"]*)"`)
	logFormatNames  = newSchema(nil).names
)

func logFormat(text string) (*Format, error) {
	body := strings.Trim(text, "'")
	if directive, ok := strings.CutPrefix(text, "log_format "); ok {
		body = ""
		for _, quoted := range quotedPattern.FindAllStringSubmatch(directive, -1) {
			body += quoted[1] + quoted[2]
		}
		if body == "" {
			return nil, fmt.Errorf("log_format: %q: write the text in single quotes", directive)
		}
	}
	labels, texts := variablePattern.FindAllString(body, -1), variablePattern.Split(body, -1)
	if len(labels) == 0 {
		return nil, fmt.Errorf("log_format %q has no variables: write one with $time_local and $request", text)
	}
	t := &template{prefix: texts[0]}
	seen := make(map[target]bool)
	for i, label := range labels {
		label = strings.Trim(label, "${}")
		v := variable{variableName(label), texts[i+1]}
		switch {
		case v.after == "" && i+1 < len(labels):
			return nil, fmt.Errorf("log_format: no text between $%s and what follows it, so they cannot be told apart: "+
				"write a space or a quote there", label)
		case strings.Contains(v.after, "$"):
			return nil, fmt.Errorf("log_format: %q: write the name of a variable after $", v.after)
		}
		seen[v.name.target] = seen[v.name.target] || v.name.rank > 0
		t.variables = append(t.variables, v)
	}
	if !seen[toTime] {
		return nil, errors.New("log_format: no time: add $time_local, $time_iso8601 or $msec")
	}
	if !seen[toRequest] && !seen[toPath] {
		return nil, errors.New("log_format: no path: add $request, $request_uri or $uri")
	}
	return &Format{name: text, cut: t.cut}, nil
}

// variableName returns what a variable is for.
func variableName(label string) name {
	if n, known := logFormatNames[label]; known || label == "http_referer" {
		return n
	}
	if header, ok := strings.CutPrefix(label, "http_"); ok {
		return name{toField, 1, "header " + http.CanonicalHeaderKey(strings.ReplaceAll(header, "_", "-"))}
	}
	if cookie, ok := strings.CutPrefix(label, "cookie_"); ok {
		return name{toField, 1, "cookie " + cookie}
	}
	return name{}
}

// cut cuts a line into values. A value ends where the text that follows its variable
// begins.
func (t *template) cut(line string, v *values) error {
	rest, ok := strings.CutPrefix(line, t.prefix)
	if !ok {
		return errForm
	}
	escaped := strings.IndexByte(rest, '\\') >= 0
	for i := range t.variables {
		of := &t.variables[i]
		end := of.end(rest, escaped)
		if end < 0 || !strings.HasPrefix(rest[end:], of.after) {
			return errForm
		}
		switch {
		case of.name.rank == 0:
		case escaped:
			v.set(of.name, unescape(rest[:end]))
		default:
			v.set(of.name, rest[:end])
		}
		rest = rest[end+len(of.after):]
	}
	if rest != "" {
		return errMore
	}
	return nil
}

// end returns where the value of a variable ends, or -1. Servers escape quotes in values, so
// the first quote that is not escaped ends one. Users choose their names, which may contain
// spaces and brackets: the time after a name is in the last brackets before a quote.
func (v *variable) end(rest string, escaped bool) int {
	switch {
	case v.after == "":
		return len(rest)
	case v.after[0] == '"' && escaped:
		return quote(rest)
	case v.after[0] == '"':
		return strings.IndexByte(rest, '"')
	case v.name.target == toUser && v.after == " [":
		return strings.LastIndex(rest[:max(0, strings.IndexByte(rest, '"'))], v.after)
	}
	return strings.Index(rest, v.after)
}

// quote returns the index of the first quote that is not escaped, or -1.
func quote(s string) int {
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '"':
			return i
		case '\\':
			i++
		}
	}
	return -1
}
