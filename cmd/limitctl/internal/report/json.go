package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"unicode"
	"unicode/utf16"
)

// JSON writes the result as an object. Characters that a terminal would obey are
// written as escapes, which decode to the same texts.
func (r *Report) JSON(w io.Writer) error {
	return WriteJSON(w, r.Result, true)
}

// WriteJSON writes a value as Report.JSON does, indented or as a line.
func WriteJSON(w io.Writer, value any, indented bool) error {
	data, err := json.Marshal(value)
	if indented {
		data, err = json.MarshalIndent(value, "", "  ")
	}
	if err != nil {
		return err
	}
	var b bytes.Buffer
	for _, c := range string(data) {
		switch {
		case c == '\n' || unicode.IsPrint(c):
			b.WriteRune(c)
		case c > 0xffff:
			high, low := utf16.EncodeRune(c)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, c)
		}
	}
	b.WriteByte('\n')
	_, err = w.Write(b.Bytes())
	return err
}
