package words

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestPrintable(t *testing.T) {
	for s, want := range map[string]string{
		"GET /Straße?q=日本": "GET /Straße?q=日本",
		"a\x1b[31mb\x00":   `a\x1b[31mb\x00`,
		"a\nb\tc\r\\":      `a\nb\tc\r\`,
		"\u202egnp.exe":    `\u202egnp.exe`,
		"\u009b2J\u200b":   `\u009b2J\u200b`,
		"\xff\xc3":         `\xff\xc3`,
		"\ufffd":           `�`,
		"\U000e0041":       `\U000e0041`,
	} {
		assert.Equal(t, want, Printable(s), "%q", s)
	}
	assert.Equal(t, "a\\x1b\nb", Lines("a\x1b\nb"))
	assert.Equal(t, "日日…", Cut("日日日日", 3))
	assert.Equal(t, "abc", Cut("abc", 3))
	assert.Equal(t, 30, len([]rune(Cut(strings.Repeat("\x1b", 1<<20), 30))))
}

func TestNumbers(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1000: "-1,000", -100: "-100"} {
		assert.Equal(t, want, Number(n))
	}
	for d, want := range map[time.Duration]string{0: "0s", 1500 * time.Nanosecond: "2µs", 120 * time.Millisecond: "120ms", 1500 * time.Millisecond: "1.5s",
		time.Minute: "1m", 90 * time.Second: "1m30s", 26 * time.Hour: "26h", 50 * time.Hour: "2d2h", 59*time.Minute + 59*time.Second + 600*time.Millisecond: "1h", 59960 * time.Millisecond: "1m", 48*time.Hour - time.Second: "2d"} {
		assert.Equal(t, want, Duration(d), "%v", d)
	}
	for n, want := range map[int64]string{0: "0 B", 999: "999 B", 1000: "1.0 kB", 999_949: "999.9 kB", 999_950: "1.0 MB", 999_960: "1.0 MB", 5e18: "5.0 EB"} {
		assert.Equal(t, want, Size(n))
	}
}
