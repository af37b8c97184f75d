package report

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/cmd/limitctl/replay"
	"github.com/routelimit/limit/cmd/limitctl/replay/accesslog"
)

func TestStay(t *testing.T) {
	stays := replay.Stays{Count: 39, P50: 30 * time.Second, P90: 57 * time.Second, P99: 57 * time.Second, Max: time.Minute}
	both := stays
	both.Never = 2
	for want, s := range map[string]replay.Stays{
		"": {},
		"Time refused: median 30s, 90% at most 57s, 99% at most 57s, longest 1m (39 times). 2 requests would be refused however long the client waits.": both,
		"Time refused: median 30s, 90% at most 57s, 99% at most 57s, longest 1m (39 times).":                                                            stays,
		"1 request would be refused however long the client waits.":                                                                                     {Never: 1},
	} {
		var text strings.Builder
		require.NoError(t, pageTemplate.ExecuteTemplate(&text, "stay", s))
		assert.Equal(t, want, strings.TrimSuffix(text.String(), "\n"))
	}
}

func TestSummaryOfSkippedLines(t *testing.T) {
	r := &Report{Result: &replay.Result{Lines: 5000, NotHTTP: 5000}}
	assert.Equal(t, []string{"5,000 lines in the log, all read as requests.", "Skipped 5,000 lines with an invalid request line.", "There is no request to decide."}, r.Summary())
}

func TestSummaryOfFormats(t *testing.T) {
	r := &Report{Result: &replay.Result{Lines: 1000, BadLines: 4, Formats: map[string]int64{"common": 1, "json": 995},
		Samples: []accesslog.BadLine{{Line: 7, Text: `"x"`}, {Line: 9, Text: `"y"`}}}}
	assert.Equal(t, []string{"1,000 lines in the log, 99.6% of them read as json, common.", `The first of 4 unread lines is line 7: "x"`}, r.Summary()[:2])
}

// TestTables aligns tables between other text, cuts texts that do not fit a terminal, the last
// column first, and never a number.
func TestTables(t *testing.T) {
	assert.Equal(t, "a b\nNAME     N  TEXT\nx        1  y\nlonger  22\n\nN\n", tables("a b\nNAME\t»N\tTEXT\nx\t1\ty\nlonger\t22\t\n\nN\n", Terminal))
	assert.Equal(t, "A  B\né  »\n", tables("A\t»B\né\t»\n", Terminal), "a client may write » too")
	wide := strings.Repeat("»1\t", 60) + "x\n"
	assert.Len(t, tables(wide, Terminal), 60+2*60+2, "numbers are never cut")
	row := []string{"2a02:8108:8ac0:1234:5c3f:1a2b:3c4d:5e6f", "1,234,567", "1,234,567", "05-01 11:00", "for good", "Mozilla/5.0 (X11; Linux x86_64)"}
	table := "CLIENT\t»REQUESTS\t»REFUSED\t»FIRST REFUSED\t»LONGEST\tAGENT\n" + strings.Join(row, "\t") + "\n"
	assert.Contains(t, tables(table, File), row[0])
	assert.Contains(t, tables(table, File), row[5], "nothing is cut for a file")
	lines := strings.Split(tables(table, Terminal), "\n")
	assert.Len(t, lines, 3)
	for _, line := range lines {
		assert.LessOrEqual(t, utf8.RuneCountInString(line), 80)
	}
	assert.Equal(t, "2a02:8108:8ac0:1234:5c…  1,234,567  1,234,567    05-01 11:00  for good  Mozilla…", lines[1])
}
