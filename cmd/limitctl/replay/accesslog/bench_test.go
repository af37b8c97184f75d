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
			var v values
			var r Record
			for b.Loop() {
				if err := f.parse(e.line, &v, &r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
