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

// Fields sets header fields of one response. It cuts their values from one text, which must
// not change afterward.
type Fields struct {
	Header http.Header
	Values []string // room for them
	Text   []byte   // append a value, and call End

	from int // of the value that is being appended
}

// End makes the text since the last End the value of a field, after the values before.
func (f *Fields) End(name string, before []string) (value string) {
	text := f.Text[f.from:]
	value = unsafe.String(unsafe.SliceData(text), len(text)) // nothing writes there again
	f.from = len(f.Text)
	f.Values = append(f.Values, value)
	f.Header[name] = Add(before, f.Values[len(f.Values)-1:len(f.Values):len(f.Values)])
	return value
}

// Add returns the values of a field with more. Most have none before.
func Add(values, more []string) []string {
	if values == nil {
		return more
	}
	return append(values, more...)
}
