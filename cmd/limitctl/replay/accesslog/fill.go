package accesslog

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// fill sets the fields of r from values.
func (r *Record) fill(found *[maxTargets][]byte, unescape func([]byte) []byte) error {
	var ok bool
	if len(found[tTime]) == 0 {
		return errMissing
	}
	if r.Time, ok = anyTime(found[tTime]); !ok {
		return errTime
	}
	if !r.setStatus(found[tStatus]) {
		return errStatus
	}
	if r.Bytes, ok = number(found[tBytes]); !ok {
		return errBytes
	}
	if v := found[tRequest]; len(v) > 0 {
		r.setRequest(v)
	}
	if v := found[tMethod]; len(v) > 0 {
		r.Method = v
	}
	if v := found[tTarget]; len(v) > 0 {
		r.setTarget(unescapeSlash(v))
	}
	if v := found[tQuery]; len(v) > 0 && r.Query == nil {
		r.Query = bytes.TrimPrefix(v, []byte("?"))
	}
	switch {
	case len(found[tClient]) > 0:
		r.Client = withoutPort(found[tClient])
	case len(found[tForwarded]) > 0:
		r.Client = withoutPort(lastOf(found[tForwarded]))
	}
	if v := found[tHost]; len(v) > 0 {
		r.Host = v
	}
	r.Host = withoutPort(r.Host)
	r.User, r.UserAgent = found[tUser], found[tAgent]
	for i := range r.Fields {
		r.Fields[i] = found[int(tField)+i]
	}
	r.finish(unescape)
	return nil
}

// unescapeSlash is for writers of JSON that escape slashes: a target must begin with one.
func unescapeSlash(b []byte) []byte {
	if len(b) > 1 && b[0] == '\\' && b[1] == '/' {
		return b[1:]
	}
	return b
}

// unescapeJSON undoes the escapes of a JSON string in place. What is no escape stays.
func unescapeJSON(b []byte) []byte {
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
		switch c := b[i]; c {
		case 'n':
			out = append(out, '\n')
		case 't':
			out = append(out, '\t')
		case 'r':
			out = append(out, '\r')
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case '"', '\\', '/':
			out = append(out, c)
		case 'u':
			first, ok := hex4(b[i+1:])
			if !ok {
				out = append(out, '\\', c)
				continue
			}
			i += 4
			if utf16.IsSurrogate(first) && i+2 < len(b) && b[i+1] == '\\' && b[i+2] == 'u' {
				if second, ok := hex4(b[i+3:]); ok {
					if pair := utf16.DecodeRune(first, second); pair != utf8.RuneError {
						out = utf8.AppendRune(out, pair)
						i += 6
						continue
					}
				}
			}
			out = utf8.AppendRune(out, first)
		default:
			out = append(out, '\\', c)
		}
	}
	return out
}

func hex4(b []byte) (n rune, ok bool) {
	if len(b) < 4 {
		return 0, false
	}
	for _, c := range b[:4] {
		digit, ok := hex(c)
		if !ok {
			return 0, false
		}
		n = n<<4 | rune(digit)
	}
	return n, true
}
