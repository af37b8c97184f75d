package doctor

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/cmd/limitctl/internal/words"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redisfacts"
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

// TestDocs holds the table of docs/doctor.md to the checks.
func TestDocs(t *testing.T) {
	text := must.Get(os.ReadFile("../../../../docs/doctor.md"))(t)
	var documented, made []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|").FindAllStringSubmatch(string(text), -1) {
		documented = append(documented, m[1])
	}
	for _, c := range checks {
		made = append(made, c.id)
	}
	assert.Equal(t, made, documented)
	assert.Contains(t, string(text), " +"+strings.ToLower(strings.Join(redisfacts.Needed, " +"))+"\n")
	assert.Contains(t, string(text), " +"+strings.ToLower(strings.Join(redisfacts.NeededByControl, " +"))+"\n")
}

// FuzzPrint prints findings that a server has had a part in: nothing that a
// terminal obeys comes out, and no line that is not the doctor's.
func FuzzPrint(f *testing.F) {
	f.Add(hostile, "127.0.0.1:6379", "redis-cli CONFIG SET save ''")
	f.Add("\x00\x9b\u2028\u202e", "\x1b]8;;http://x\x07", "\r\n\v\f")
	f.Add("\uFFFD\xff", "\uFFFD", "\xef\xbf")
	f.Fuzz(func(t *testing.T, found, node, fix string) {
		findings := []Finding{
			{Check: "keys", Verdict: Fail, Nodes: []string{node, "b:1"}, Found: found, Why: "why", Fix: []string{fix}},
			{Check: "role", Verdict: OK, Nodes: []string{"b:1"}, Found: words.Quote(found)},
		}
		var text bytes.Buffer
		require.NoError(t, Print(&text, findings))
		assertHarmless(t, text.String())
		require.Equal(t, 6, strings.Count(text.String(), "\n"))
		text.Reset()
		require.NoError(t, PrintJSON(&text, findings))
		assertHarmless(t, text.String())
		require.Equal(t, 2, strings.Count(text.String(), "\n"))
	})
}
