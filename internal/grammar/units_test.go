package grammar

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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
		h, err := (&Reader{Text: "5/" + text + " per ip"}).Head()
		require.NoError(t, err, text)
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
