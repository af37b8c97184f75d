package doctor

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/cmd/limitctl/internal/words"
)

// hostile is what a terminal might obey, or a reader not see.
const hostile = "\x1b[2J\x1b]0;title\x07 \u009b31m \u202eevil\u2066 \u200b \u00ad \x7f \xff\r\nok       version  \t\U000e0041"

func assertHarmless(t *testing.T, text string) {
	t.Helper()
	require.True(t, utf8.ValidString(text), "%q", text)
	for _, r := range strings.ReplaceAll(text, "\n", "") {
		if !unicode.IsPrint(r) {
			t.Errorf("%U in %q", r, text)
		}
	}
}

func TestClean(t *testing.T) {
	assert.Equal(t, `\x1b[2J \u202e \x9b \xff \n é 世界 �`, words.Printable("\x1b[2J \u202e \x9b \xff \n é 世界 \uFFFD"))
	assert.Equal(t, `\u009b`, words.Printable("\u009b"))
	assertHarmless(t, words.Printable(hostile))
	assert.NotContains(t, words.Printable(hostile), "\n")
}

func TestQuote(t *testing.T) {
	assert.Equal(t, `"limit:1:{p}:r:\x1b[2J\u202e\u00e9\""`, words.Quote("limit:1:{p}:r:\x1b[2J\u202eé\""))
	assert.Equal(t, `"`+strings.Repeat("a", 120)+`"… (1000 bytes)`, words.Quote(strings.Repeat("a", 1000)))
}

func TestPrintIsHarmless(t *testing.T) {
	findings := []Finding{
		{Check: "keys", Verdict: Fail, Nodes: []string{hostile, "b:1"}, Found: hostile, Why: "why", Fix: []string{hostile}},
		{Check: "role", Verdict: OK, Nodes: []string{"b:1"}, Found: "primary"},
	}
	var text bytes.Buffer
	require.NoError(t, Print(&text, findings))
	assertHarmless(t, text.String())
	assert.Equal(t, 6, strings.Count(text.String(), "\n"), "a finding cannot make lines: %s", text.String())
	assert.Contains(t, text.String(), "1 ok, 0 warn, 1 fail, 0 skipped\n")

	text.Reset()
	require.NoError(t, PrintJSON(&text, findings))
	assertHarmless(t, text.String())
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	require.Len(t, lines, 2)
	var f Finding
	require.NoError(t, json.Unmarshal([]byte(lines[1]), &f))
	assert.Equal(t, findings[1], f)
}

func TestPercentile(t *testing.T) {
	assert.Equal(t, time.Duration(1), percentile([]time.Duration{1}, 99))
	d := make([]time.Duration, 50)
	for i := range d {
		d[i] = time.Duration(i + 1)
	}
	assert.Equal(t, time.Duration(25), percentile(d, 50))
	assert.Equal(t, time.Duration(50), percentile(d, 99))
}
