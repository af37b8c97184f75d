package words

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"unicode"
	"unicode/utf16"
)

// WriteJSON writes a value as JSON, indented or as a line. Characters that a terminal would
// obey are written as escapes, which decode to the same texts.
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
