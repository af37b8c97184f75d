package accesslog

import (
	"strings"
	"testing"
)

// BenchmarkParse parses one example line of each format.
func BenchmarkParse(b *testing.B) {
	for _, e := range examples {
		f, err := ParseFormat(e.format)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(strings.ReplaceAll(e.name, " ", "_"), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(e.line)))
			line, buffer := []byte(e.line), []byte(e.line)
			var r Record
			for b.Loop() {
				copy(buffer, line)
				if err := f.Parse(buffer, &r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
