package accesslog

import "bytes"

// fill sets the fields of r from values.
func (r *Record) fill(found *[maxTargets][]byte) error {
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
	r.finish()
	return nil
}

// unescapeSlash is for writers of JSON that escape slashes: a target must begin with one.
func unescapeSlash(b []byte) []byte {
	if len(b) > 1 && b[0] == '\\' && b[1] == '/' {
		return b[1:]
	}
	return b
}
