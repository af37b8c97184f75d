package accesslog

import "bytes"

// The time of the common log format with its brackets: "[10/Oct/2000:13:55:36 -0700]".
const bracketedTime = 28

// commonHead reads a line up to the request of the common log format. Users choose their
// names, which may contain spaces and brackets but no quotes. So the time is found from
// the first quote backward. With a host, the line begins with that of the server.
func (r *Record) commonHead(line []byte, host bool) (rest []byte, err error) {
	q := bytes.IndexByte(line, '"')
	start := q - 1 - bracketedTime
	if start < 0 || line[q-1] != ' ' || line[start] != '[' || line[q-2] != ']' {
		return nil, errForm
	}
	var ok bool
	if r.Time, ok = clfTime(line[start+1 : q-2]); !ok {
		return nil, errTime
	}
	if start == 0 || line[start-1] != ' ' {
		return nil, errForm
	}
	head := line[:start-1]
	if host {
		if r.Host, head, ok = cut(head); !ok {
			return nil, errForm
		}
		r.Host = withoutPort(r.Host)
	}
	client, head, ok1 := cut(head)
	identity, user, ok2 := cut(head)
	if !ok1 || !ok2 || len(user) == 0 || string(identity) != "-" && bytes.IndexByte(user, ' ') >= 0 {
		return nil, errForm
	}
	r.Client, r.User = client, user
	return line[q:], nil
}

// commonBody reads the request, the status and the size.
func (r *Record) commonBody(b []byte) (rest []byte, err error) {
	request, b, ok := cutQuoted(b)
	if !ok {
		return nil, errForm
	}
	if b, ok = space(b); !ok {
		return nil, errForm
	}
	status, b, ok := cut(b)
	if !ok || !r.setStatus(status) {
		return nil, errStatus
	}
	size := b
	if i := bytes.IndexByte(b, ' '); i >= 0 {
		size, b = b[:i], b[i:]
	} else {
		b = nil
	}
	if len(size) == 0 || !r.setBytes(size) {
		return nil, errBytes
	}
	r.setRequest(request)
	return b, nil
}

// agents reads the referrer and the user agent.
func (r *Record) agents(b []byte) (rest []byte, err error) {
	b, ok1 := space(b)
	_, b, ok2 := cutQuoted(b)
	b, ok3 := space(b)
	agent, b, ok4 := cutQuoted(b)
	if !ok1 || !ok2 || !ok3 || !ok4 {
		return nil, errForm
	}
	r.UserAgent = agent
	return b, nil
}

// parseCommon reads the common log format of Apache and others.
func parseCommon(_ *Format, line []byte, r *Record) error {
	b, err := r.commonHead(line, false)
	if err == nil {
		b, err = r.commonBody(b)
	}
	return r.end(b, err)
}

// end finishes a line of a text format that must have been read to its end.
func (r *Record) end(rest []byte, err error) error {
	switch {
	case err != nil:
		return err
	case len(rest) > 0:
		return errMore
	}
	r.finish()
	return nil
}

func (r *Record) combined(line []byte, host bool) (rest []byte, err error) {
	b, err := r.commonHead(line, host)
	if err == nil {
		b, err = r.commonBody(b)
	}
	if err != nil {
		return nil, err
	}
	return r.agents(b)
}

// parseCombined reads the combined log format of Apache and nginx.
func parseCombined(_ *Format, line []byte, r *Record) error {
	return r.end(r.combined(line, false))
}

// parseVhost reads vhost_combined of Apache on Debian: the server's name and port
// before a combined line.
func parseVhost(_ *Format, line []byte, r *Record) error {
	return r.end(r.combined(line, true))
}

// parseCombinedMore reads a combined line with more fields at its end, such as the
// X-Forwarded-For of the format "main" in the configuration that comes with nginx.
func parseCombinedMore(_ *Format, line []byte, r *Record) error {
	b, err := r.combined(line, false)
	if err != nil {
		return err
	}
	if len(b) < 2 || b[0] != ' ' || !quoted(b) {
		return errForm
	}
	return r.end(nil, nil)
}

// quoted reports whether each quote in b is closed, as it is in a line that was not
// truncated.
func quoted(b []byte) bool {
	for {
		i := quote(b)
		if i < 0 {
			return true
		}
		j := quote(b[i+1:])
		if j < 0 {
			return false
		}
		b = b[i+j+2:]
	}
}

// parseTraefik reads the common format of Traefik: a combined line, the number of the
// request, the router, the URL of the server, and the duration.
func parseTraefik(_ *Format, line []byte, r *Record) error {
	b, err := r.combined(line, false)
	if err != nil {
		return err
	}
	b, ok1 := space(b)
	count, b, ok2 := cut(b)
	_, ok3 := number(count)
	_, b, ok4 := cutQuoted(b)
	b, ok5 := space(b)
	_, b, ok6 := cutQuoted(b)
	b, ok7 := space(b)
	duration, ok8 := bytes.CutSuffix(b, []byte("ms"))
	_, ok9 := number(duration)
	if !ok1 || !ok2 || !ok3 || !ok4 || !ok5 || !ok6 || !ok7 || !ok8 || !ok9 {
		return errForm
	}
	r.Client = withoutPort(r.Client)
	return r.end(nil, nil)
}
