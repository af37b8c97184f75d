package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// A template is an nginx log_format: a text before the first variable, and variables
// with the text that follows each.
type template struct {
	prefix    string
	variables []variable
}

type variable struct {
	target target
	kept   bool // whether a field is made of it
	after  string
}

// nginx lists the variables that become fields. Others are skipped.
var nginx = map[string]target{
	"time_local": tTime, "time_iso8601": tTime, "msec": tTime,
	"remote_addr": tClient, "http_x_forwarded_for": tForwarded, "proxy_add_x_forwarded_for": tForwarded,
	"remote_user": tUser, "request_method": tMethod,
	"request_uri": tTarget, "uri": tTarget, "document_uri": tTarget, "args": tQuery, "query_string": tQuery,
	"status": tStatus, "body_bytes_sent": tBytes, "bytes_sent": tBytes,
	"http_user_agent": tAgent, "host": tHost, "http_host": tHost, "server_name": tHost, "request": tRequest,
}

// LogFormat returns a format for the lines that an nginx log_format writes. The text is
// that of the directive, alone or as it stands in nginx.conf:
//
//	log_format main '$remote_addr - $remote_user [$time_local] "$request" '
//	                '$status $body_bytes_sent "$http_user_agent"';
//
// Variables of requested headers and cookies ($http_x_api_key, $cookie_session) become
// [Record].Fields. $remote_addr is the client; without it, the last address of
// $http_x_forwarded_for.
func LogFormat(text string) (*Format, error) {
	given := text
	t := &template{}
	text, err := directive(text)
	if err != nil {
		return nil, err
	}
	f := &Format{name: "log_format " + text, parse: parseLogFormat, text: t}
	i := strings.IndexByte(text, '$')
	if i < 0 {
		return nil, fmt.Errorf("log_format %q has no variables: write one with $time_local and $request", given)
	}
	t.prefix = text[:i]
	seen := make(map[target]bool)
	for text = text[i:]; text != ""; {
		name, after, err := nextVariable(text)
		if err != nil {
			return nil, err
		}
		literal := after
		if next := strings.IndexByte(after, '$'); next >= 0 {
			literal, after = after[:next], after[next:]
			if literal == "" {
				return nil, fmt.Errorf("log_format: no text between $%s and what follows it, so they cannot be told apart: write a space or a quote there", name)
			}
		} else {
			after = ""
		}
		v := variable{after: literal}
		v.target, v.kept = f.variable(name)
		if v.kept && seen[v.target] && v.target < tField {
			v.kept = false // the first of several, such as $time_local and $msec
		}
		seen[v.target] = seen[v.target] || v.kept
		t.variables = append(t.variables, v)
		text = after
	}
	if !seen[tTime] {
		return nil, errors.New("log_format: no time: add $time_local, $time_iso8601 or $msec")
	}
	if !seen[tRequest] && !seen[tTarget] {
		return nil, errors.New("log_format: no path: add $request, $request_uri or $uri")
	}
	return f, nil
}

// directive returns the text between the quotes of a directive, and a text without
// them as it is.
func directive(text string) (string, error) {
	text = strings.TrimSpace(text)
	rest, ok := strings.CutPrefix(text, "log_format ")
	if !ok {
		if n := len(text); n > 1 && (text[0] == '\'') && text[n-1] == '\'' {
			text = text[1 : n-1]
		}
		return text, nil
	}
	_, rest, _ = strings.Cut(strings.TrimSpace(rest), " ") // its name
	rest = strings.TrimSpace(rest)
	if escape, after, ok := strings.Cut(rest, " "); ok && strings.HasPrefix(escape, "escape=") {
		rest = strings.TrimSpace(after)
	}
	var out strings.Builder
	for rest = strings.TrimSuffix(rest, ";"); ; {
		rest = strings.TrimSpace(rest)
		if rest == "" {
			return out.String(), nil
		}
		mark := rest[0]
		end := -1
		if mark == '\'' || mark == '"' {
			end = strings.IndexByte(rest[1:], mark)
		}
		if end < 0 {
			return "", fmt.Errorf("log_format: %q: write the text in single quotes", rest)
		}
		out.WriteString(rest[1 : 1+end])
		rest = rest[2+end:]
	}
}

// nextVariable cuts a variable from the text that begins with its $.
func nextVariable(text string) (name, after string, err error) {
	body := text[1:]
	if strings.HasPrefix(body, "{") {
		end := strings.IndexByte(body, '}')
		if end < 2 {
			return "", "", fmt.Errorf("log_format: %q: write ${name}", text)
		}
		return body[1:end], body[end+1:], nil
	}
	end := 0
	for end < len(body) && (body[end] == '_' || 'a' <= body[end] && body[end] <= 'z' || 'A' <= body[end] && body[end] <= 'Z' || '0' <= body[end] && body[end] <= '9') {
		end++
	}
	if end == 0 {
		return "", "", fmt.Errorf("log_format: %q: write the name of a variable after $", text)
	}
	return body[:end], body[end:], nil
}

// variable returns what a variable is for, and adds it to Fields if it is a header or
// a cookie.
func (f *Format) variable(name string) (to target, kept bool) {
	if to, kept = nginx[name]; kept {
		return to, true
	}
	var label string
	if header, ok := strings.CutPrefix(name, "http_"); ok {
		label = "header " + http.CanonicalHeaderKey(strings.ReplaceAll(header, "_", "-"))
	} else if cookie, ok := strings.CutPrefix(name, "cookie_"); ok {
		label = "cookie " + cookie
	}
	if label == "" || name == "http_referer" || len(f.fields) == maxFields || slices.Contains(f.fields, label) {
		return 0, false
	}
	f.fields = append(f.fields, label)
	return tField + target(len(f.fields)-1), true
}

// parseLogFormat reads a line by a template. A value ends where the text that follows
// its variable begins. nginx escapes quotes in values, so the first quote that is not
// escaped ends one.
func parseLogFormat(f *Format, line []byte, r *Record) error {
	t := f.text
	if len(line) < len(t.prefix) || string(line[:len(t.prefix)]) != t.prefix {
		return errForm
	}
	var found [maxTargets][]byte
	b := line[len(t.prefix):]
	for i := range t.variables {
		v := &t.variables[i]
		end := len(b)
		switch {
		case v.after == "":
		case v.after[0] == '"':
			end = quote(b)
		default:
			end = indexString(b, v.after)
		}
		if end < 0 || len(b)-end < len(v.after) || string(b[end:end+len(v.after)]) != v.after {
			return errMissing
		}
		if v.kept && len(blank(b[:end])) > 0 {
			found[v.target] = b[:end]
		}
		b = b[end+len(v.after):]
	}
	if len(b) > 0 {
		return errMore
	}
	return r.fill(&found)
}

// indexString is bytes.Index of a string.
func indexString(b []byte, s string) int {
	from := 0
	for {
		i := bytes.IndexByte(b[from:], s[0])
		if i < 0 || from+i+len(s) > len(b) {
			return -1
		}
		if from += i; string(b[from:from+len(s)]) == s {
			return from
		}
		from++
	}
}
