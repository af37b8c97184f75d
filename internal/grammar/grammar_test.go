package grammar

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit/internal/must"
)

func TestValidName(t *testing.T) {
	for _, name := range []string{"a", "Login.v2_x-1", strings.Repeat("x", 64)} {
		assert.True(t, ValidName(name), name)
	}
	for _, name := range []string{"", "a b", "é", "a\n", "a:b", "\xff", strings.Repeat("x", 65)} {
		assert.False(t, ValidName(name), name)
	}
}

func TestQuoted(t *testing.T) {
	for _, text := range []string{"", "Try again later.", `a "b" \ c; (d)`, `\`, `"`, `\"`, "é"} {
		r := &Reader{Text: " " + Quote(text) + " x"}
		got, err := r.Quoted("a text")
		assert.NoError(t, err, text)
		assert.Equal(t, text, got)
		assert.Equal(t, "x", r.Peek(), text)
	}
	for _, text := range []string{"", "x", `"`, `"x`, "\"x\n\"", `"x\`, `"x\"`} {
		_, err := (&Reader{Text: text}).Quoted("a text")
		assert.Error(t, err, text)
	}
}

func TestParseKey(t *testing.T) {
	for _, text := range []string{"global", "ip", "(user or header X) and path id", "tenant or ip", "query or or cookie and"} {
		k, err := ParseKey(text)
		assert.NoError(t, err, text)
		assert.Equal(t, text, k.String())
	}
	k, _ := ParseKey("(path a or path b) and tenant")
	assert.Equal(t, []string{"a", "b"}, k.Names(Path))
	assert.Equal(t, []string{"tenant"}, k.Names(Func))
	for _, text := range []string{"", "ip ip", "ip or global", "or"} {
		_, err := ParseKey(text)
		assert.Error(t, err, text)
	}
}

func TestNearest(t *testing.T) {
	words := []string{"token-bucket", "burst", "ban", "hidden", "wait", "exempt"}
	for misspelled, want := range map[string]string{
		"Burst": "burst", "brust": "burst", "bursts": "burst", "bust": "burst", "hiden": "hidden", "tok": "token-bucket", "TokenBucket": "token-bucket",
		"wiat": "wait", "bam": "ban", "exmept": "exempt", "": "", "b": "", "to": "", "5": "", "or": "", "silent": "", "bananas": "", "waiters": "",
		strings.Repeat("x", 1<<20): "", "é": "", "\xff\xff": "",
	} {
		assert.Equal(t, want, Nearest(misspelled, words), "%.20q", misspelled)
	}
}

func TestFormatWindow(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"2s": 2 * time.Second, "1m": time.Minute, "1h": time.Hour, "1d": day, "366d": 366 * day, "1m30s": 90 * time.Second,
		"1h30m": 90 * time.Minute, "1d12h": 36 * time.Hour, "500ms": 500 * time.Millisecond, "1s500ms": 1500 * time.Millisecond,
		"250µs": 250 * time.Microsecond, "1d1h1m1s1ms1µs": day + time.Hour + time.Minute + time.Second + time.Millisecond + time.Microsecond,
		// Invalid windows, which messages contain.
		"0s": 0, "1ns": 1, "1µs500ns": 1500, "-2s": -2 * time.Second,
		"-2562047h47m16.854775808s": math.MinInt64, "106751d23h47m16s854ms775µs807ns": math.MaxInt64,
	} {
		assert.Equal(t, want, FormatWindow(d))
	}
}

func TestParseWindow(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"2s": 2 * time.Second, "1m": time.Minute, "1h": time.Hour, "1d": day, "366d": 366 * day,
		"s": time.Second, "m": time.Minute, "h": time.Hour, "d": day, "ms": time.Millisecond,
		"second": time.Second, "minute": time.Minute, "hour": time.Hour, "day": day, "2minute": 2 * time.Minute,
		"1h30m": 90 * time.Minute, "1d12h": 36 * time.Hour, "90m": 90 * time.Minute, "1m1m": 2 * time.Minute,
		"1.5s": 1500 * time.Millisecond, "0.25d": 6 * time.Hour, "2.s": 2 * time.Second, "1.000s": time.Second,
		"1ms250µs": 1250 * time.Microsecond, "1ms250μs": 1250 * time.Microsecond, "1250us": 1250 * time.Microsecond,
		"1250000ns": 1250 * time.Microsecond, "0s2s": 2 * time.Second,
	} {
		h := must.Get((&Reader{Text: "5/" + text + " per ip"}).Head())(t, text)
		assert.Equal(t, want, h.Window, text)
	}
}

// TestNumber reads numbers from 1 to 10, and leaves anything else where it is.
func TestNumber(t *testing.T) {
	for text, want := range map[string]int64{"1": 1, "10": 10, "0": 0, "11": 0, "x": 0, "": 0, "-1": 0, "1k": 0, "99999999999999999999": 0} {
		r := &Reader{Text: text}
		n, err := r.Number(10, "a number")
		assert.Equal(t, want, n, text)
		assert.Equal(t, want == 0, err != nil, text)
	}
}
