package response

import (
	"net/http"
	"strconv"
	"unsafe"
)

// Values that many responses share, and so must not change in place.
var (
	NoStore     = []string{"no-store"}
	ProblemJSON = []string{"application/problem+json"}
	NoSniff     = []string{"nosniff"}
)

// Fields sets header fields of one response. It cuts their values from one text, which must not
// change afterward.
type Fields struct {
	Header http.Header
	Values []string // room for them
	Text   []byte   // append a value, and call End

	from int // of the value that is being appended
}

// End makes the text since the last End the value of a field, after the values before.
func (f *Fields) End(name string, before []string) {
	text := f.Text[f.from:]
	value := unsafe.String(unsafe.SliceData(text), len(text)) // nothing writes there again
	f.from = len(f.Text)
	f.Values = append(f.Values, value)
	f.Header[name] = Add(before, f.Values[len(f.Values)-1:len(f.Values):len(f.Values)])
}

// Quota sets three fields of a quota: Limit, Remaining and Reset, between two parts of their names.
func (f *Fields) Quota(before, behind string, limit, left int64, reset string) {
	f.Text = strconv.AppendInt(f.Text, limit, 10)
	f.End(http.CanonicalHeaderKey(before+"Limit"+behind), nil)
	f.Text = strconv.AppendInt(f.Text, left, 10)
	f.End(http.CanonicalHeaderKey(before+"Remaining"+behind), nil)
	f.Text = append(f.Text, reset...)
	f.End(http.CanonicalHeaderKey(before+"Reset"+behind), nil)
}

// Add returns the values of a field with more. Most have none before.
func Add(values, more []string) []string {
	if values == nil {
		return more
	}
	return append(values, more...)
}
