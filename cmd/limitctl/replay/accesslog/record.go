package accesslog

// A Record is one request of an access log. Its fields are parts of the line that it
// was read from, and so are valid only as long as that line: see [Stream.Next]. A field
// that the line does not have, or has as "-", is empty.
type Record struct {
	Time   int64 // microseconds since the Unix epoch; years 0 to 9999
	Status int   // of the response; 0 if the line has none
	Bytes  int64 // of the response; 0 if the line has none

	Client    []byte // an address without its port, or a host name
	User      []byte
	Method    []byte // empty if the client sent no HTTP, such as TLS to a plain port
	Path      []byte // as sent, without the query
	Query     []byte // as sent, without the question mark
	UserAgent []byte
	Host      []byte

	// Fields has the values of [Format.Fields], in their order.
	Fields [][]byte

	// Format is the format that the line was read by.
	Format *Format
}

// reset empties r for the next line.
func (r *Record) reset(f *Format) {
	fields := r.Fields
	*r = Record{Format: f}
	if n := len(f.fields); n > 0 {
		if cap(fields) < n {
			fields = make([][]byte, n)
		}
		clear(fields[:n])
		r.Fields = fields[:n]
	}
}

// finish turns what a parser has cut from a line into values. A parser calls it last,
// since it changes the line, which another format may have to read otherwise.
func (r *Record) finish() {
	for _, field := range [...]*[]byte{&r.User, &r.Path, &r.Query, &r.UserAgent, &r.Host} {
		*field = unescape(*field)
	}
	for i := range r.Fields {
		r.Fields[i] = blank(unescape(r.Fields[i]))
	}
	r.User, r.UserAgent, r.Host = blank(r.User), blank(r.UserAgent), blank(r.Host)
}

// blank returns nil for a value that logs write where there is none.
func blank(b []byte) []byte {
	if len(b) == 1 && b[0] == '-' {
		return nil
	}
	return b
}
