package response

import (
	"net/http"
	"unsafe"
)

// Values that many responses share, and so must not change in place.
var (
	NoStore     = []string{"no-store"}
	problemJSON = []string{"application/problem+json"}
	noSniff     = []string{"nosniff"}
)

// Fields are header fields of one response, whose values share one text.
type Fields struct {
	Text []byte // of all values: append one, and call End

	names  [5]string
	ends   [5]int
	before [5][]string
	n      int
}

// End says that the text since the last End is the value of a field, which may be empty, and
// comes after other values.
func (f *Fields) End(name string, before []string) {
	f.names[f.n], f.ends[f.n], f.before[f.n] = name, len(f.Text), before
	f.n++
}

// Set sets the fields in h, and returns their values. These are put into the given room, as
// far as it goes; it and the text belong to h from then on.
func (f *Fields) Set(h http.Header, values []string) []string {
	text, from := unsafe.String(unsafe.SliceData(f.Text), len(f.Text)), 0
	for _, to := range f.ends[:f.n] {
		values = append(values, text[from:to])
		from = to
	}
	for i := range values {
		h[f.names[i]] = Add(f.before[i], values[i:i+1:i+1])
	}
	return values
}

// Add returns the values of a field with more. Most have none before.
func Add(values, more []string) []string {
	if values == nil {
		return more
	}
	return append(values, more...)
}
