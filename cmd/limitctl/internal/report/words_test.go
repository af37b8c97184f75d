package report

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit/cmd/limitctl/replay"
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
	assert.Equal(t, "日日…", shorten("日日日日", 3))
	assert.Equal(t, "abc", shorten("abc", 3))
	assert.Equal(t, 30, len([]rune(shorten(strings.Repeat("\x1b", 1<<20), 30))))
}

func TestNumbers(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1000: "-1,000", -100: "-100"} {
		assert.Equal(t, want, number(n))
	}
	assert.Equal(t, []string{"–", "0%", "100%", "<0.1%", ">99.9%", "33.3%"},
		[]string{percent(0, 0), percent(0, 5), percent(5, 5), percent(1, 1e6), percent(1e6-1, 1e6), percent(1, 3)})
	for d, want := range map[time.Duration]string{0: "0s", 1500 * time.Nanosecond: "2µs", 120 * time.Millisecond: "120ms", 1500 * time.Millisecond: "1.5s",
		time.Minute: "1m", 90 * time.Second: "1m30s", 26 * time.Hour: "26h", 50 * time.Hour: "2d2h", 59*time.Minute + 59*time.Second + 600*time.Millisecond: "1h", 59960 * time.Millisecond: "1m", 48*time.Hour - time.Second: "2d"} {
		assert.Equal(t, want, duration(d), "%v", d)
	}
}

func TestColumns(t *testing.T) {
	at := func(seconds ...int64) (list []replay.Bucket) {
		for _, s := range seconds {
			list = append(list, replay.Bucket{Start: time.Unix(s, 0).UTC(), Requests: 1, Refused: 1})
		}
		return list
	}
	list, gaps := columns(at(0, 1, 2, 9), time.Second, 5)
	assert.False(t, gaps)
	assert.Len(t, list, 5)
	assert.Equal(t, column{time.Unix(0, 0).UTC(), 2 * time.Second, 2, 2}, list[0])
	assert.Equal(t, int64(1), list[4].Refused)

	list, gaps = columns(at(0, 1, 2, 1<<31), time.Second, 60)
	assert.True(t, gaps, "a wrong time")
	assert.Len(t, list, 4)
	assert.Equal(t, time.Unix(1<<31, 0).UTC(), list[3].Start)

	list, _ = columns(nil, time.Second, 60)
	assert.Empty(t, list)
}
