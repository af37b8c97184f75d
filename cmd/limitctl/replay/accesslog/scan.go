package accesslog

import (
	"bytes"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// cut returns b up to the first space, and what follows it.
func cut(b []byte) (token, rest []byte, ok bool) {
	i := bytes.IndexByte(b, ' ')
	if i <= 0 {
		return nil, b, false
	}
	return b[:i], b[i+1:], true
}

// cutQuoted returns a text in double quotes, and what follows it. A backslash escapes
// a quote.
func cutQuoted(b []byte) (value, rest []byte, ok bool) {
	if len(b) < 2 || b[0] != '"' {
		return nil, b, false
	}
	i := quote(b[1:])
	if i < 0 {
		return nil, b, false
	}
	return b[1 : 1+i], b[2+i:], true
}

// quote returns the index of the first quote that is not escaped, or -1.
func quote(b []byte) int {
	from := 0
	for {
		i := bytes.IndexByte(b[from:], '"')
		if i < 0 {
			return -1
		}
		i += from
		escapes := 0
		for escapes < i-from && b[i-1-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return i
		}
		from = i + 1
	}
}

// space removes a space that must be there.
func space(b []byte) (rest []byte, ok bool) {
	if len(b) == 0 || b[0] != ' ' {
		return b, false
	}
	return b[1:], true
}

// number reads digits. "-" and "" are 0.
func number(b []byte) (n int64, ok bool) {
	if len(b) == 0 || len(b) == 1 && b[0] == '-' {
		return 0, true
	}
	if len(b) > 18 {
		return 0, false
	}
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}

// setStatus reads the status of a response.
func (r *Record) setStatus(b []byte) bool {
	n, ok := number(b)
	r.Status = int(n)
	return ok && n <= 999
}

// setBytes reads the size of a response.
func (r *Record) setBytes(b []byte) (ok bool) {
	r.Bytes, ok = number(b)
	return ok
}

// setRequest reads a request line. Clients also send what is no request, and servers
// log it: then method and path stay empty.
func (r *Record) setRequest(b []byte) {
	i := bytes.IndexByte(b, ' ')
	if i <= 0 || i > 32 || !isMethod(b[:i]) {
		return
	}
	r.Method = b[:i]
	target := b[i+1:]
	if j := bytes.LastIndexByte(target, ' '); j >= 0 && bytes.HasPrefix(target[j+1:], []byte("HTTP/")) {
		target = target[:j]
	}
	r.setTarget(target)
}

// isMethod reports whether b is a method: servers log methods of other letters too,
// but those are not routed.
func isMethod(b []byte) bool {
	for _, c := range b {
		if (c < 'A' || c > 'Z') && c != '-' && c != '_' {
			return false
		}
	}
	return len(b) > 0 && b[0] != '-'
}

// setTarget reads the target of a request: a path with a query, or a URL.
func (r *Record) setTarget(b []byte) {
	if len(b) > 0 && b[0] != '/' {
		if i := bytes.Index(b, []byte("://")); i > 0 && i < 8 {
			b = b[i+3:]
			host := len(b)
			if j := bytes.IndexAny(b, "/?"); j >= 0 {
				host = j
			}
			r.Host, b = b[:host], b[host:]
		}
	}
	if i := bytes.IndexByte(b, '?'); i >= 0 {
		r.Path, r.Query = b[:i], b[i+1:]
		return
	}
	r.Path = b
}

// withoutPort returns an address without its port and brackets.
func withoutPort(b []byte) []byte {
	if len(b) > 0 && b[0] == '[' {
		if i := bytes.IndexByte(b, ']'); i > 0 {
			return b[1:i]
		}
		return b
	}
	i := bytes.IndexByte(b, ':')
	if i < 0 || bytes.IndexByte(b[i+1:], ':') >= 0 { // none, or an IPv6 address
		return b
	}
	return b[:i]
}

// lastOf returns the last entry of a list with commas: of X-Forwarded-For, the one
// that the proxy itself has written.
func lastOf(b []byte) []byte {
	return bytes.TrimSpace(b[bytes.LastIndexByte(b, ',')+1:])
}

// letters are what stands after a backslash, and the bytes that it means.
const letters, meant = `"\/ntrbfv`, "\"\\/\n\t\r\b\f\v"

// unescape undoes in place the escapes of nginx, Apache and HAProxy (\x22, \", \\ and the
// letters of C) and of JSON (\u0022). What is no escape stays. No writer leaves what a
// client sent as it is if it looks like an escape.
func unescape(b []byte) []byte {
	at := bytes.IndexByte(b, '\\')
	if at < 0 {
		return b
	}
	out := b[:at]
	for i := at; i < len(b); i++ {
		if b[i] != '\\' || i+1 == len(b) {
			out = append(out, b[i])
			continue
		}
		i++
		if n, ok := hexes(b[i+1:], 2); ok && (b[i] == 'x' || b[i] == 'X') {
			out = append(out, byte(n))
			i += 2
			continue
		}
		if first, ok := hexes(b[i+1:], 4); ok && b[i] == 'u' {
			i += 4
			if utf16.IsSurrogate(first) && bytes.HasPrefix(b[i+1:], []byte(`\u`)) {
				second, _ := hexes(b[i+3:], 4)
				if pair := utf16.DecodeRune(first, second); pair != utf8.RuneError {
					first = pair
					i += 6
				}
			}
			out = utf8.AppendRune(out, first)
			continue
		}
		if letter := strings.IndexByte(letters, b[i]); letter >= 0 {
			out = append(out, meant[letter])
			continue
		}
		out = append(out, '\\', b[i])
	}
	return out
}

// hexes reads n hexadecimal digits.
func hexes(b []byte, n int) (value rune, ok bool) {
	if len(b) < n {
		return 0, false
	}
	for _, c := range b[:n] {
		digit, ok := hex(c)
		if !ok {
			return 0, false
		}
		value = value<<4 | rune(digit)
	}
	return value, true
}

func hex(c byte) (n byte, ok bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10, true
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}
