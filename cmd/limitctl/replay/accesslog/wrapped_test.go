package accesslog

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// wraps are what collectors make of a line.
var wraps = map[string]func(line string) string{
	"json-file":              jsonFile,
	"json-file of logs":      func(line string) string { return jsonFile("web-1  | " + line) },
	"CRI":                    before("2024-03-01T10:00:00.123456789Z stdout F "),
	"CRI, standard error":    before("2024-03-01T10:00:00.1+02:00 stderr F "),
	"docker compose":         before("web-1  | "),
	"docker compose logs -t": before("web-1  | 2024-03-01T10:00:00.123456789Z "),
	"docker logs -t":         before("2024-03-01T10:00:00.123456789Z "),
	"journald":               before("Oct 10 13:55:36 host.example nginx[123]: "),
	"syslog":                 before("Oct  1 03:05:06 host nginx: "),
	"syslog with a priority": before("<190>Oct 10 13:55:36 host nginx: "),
	"rsyslog":                before("2024-03-01T10:00:00.123456+00:00 host caddy[7]: "),
	"RFC 5424":               before("<34>1 2003-10-11T22:14:15.003Z host nginx 10 ID47 - "),
	"RFC 5424 with data":     before(`<165>1 2003-10-11T22:14:15.003Z host nginx - - [a@1 k="v"] `),
}

func before(prefix string) func(string) string {
	return func(line string) string { return prefix + line }
}

// jsonFile returns a line as Docker's driver json-file writes it: see
// docs.docker.com/engine/logging/drivers/json-file.
func jsonFile(line string) string {
	text, _ := json.Marshal(struct {
		Log    string `json:"log"`
		Stream string `json:"stream"`
		Time   string `json:"time"`
	}{line + "\n", "stdout", "2024-03-01T10:00:00.123456789Z"})
	return string(text)
}

// TestWrapped reads each example behind what collectors write, between other lines of
// the same program.
func TestWrapped(t *testing.T) {
	for name, wrap := range wraps {
		for _, e := range examples {
			noise := wrap("a line of the program itself") + "\n"
			text := strings.Repeat(noise, 120) + strings.Repeat(wrap(e.line)+"\n", 3) + noise + wrap(e.line) + "\n"
			s := NewStream(strings.NewReader(text), nil)
			read := 0
			for r := s.Next(); r != nil; r = s.Next() {
				assert.Equal(t, e.want, plainOf(r), "%s: %s", name, e.name)
				read++
			}
			require.NoError(t, s.Err())
			assert.Equal(t, 4, read, "%s: %s", name, e.name)
			assert.EqualValues(t, 121, s.Stats().BadLines)
		}
	}
}

// TestUnwrapped holds that a line without such a beginning stays as it is.
func TestUnwrapped(t *testing.T) {
	for _, e := range examples {
		if e.name != "haproxy" { // whose line has that of syslog
			assert.Equal(t, e.line, unwrapped(e.line))
		}
	}
	for _, line := range []string{"", " ", "|", " | ", "a|b", "a b | c", "a \" | c", "2024-03-01T10:00:00Z",
		`{"log":"a\n","stream":"out"}`, `{"log":"a`, `{"log":"a","level":"info"}`, "Oct 10 13:55:36 host", "Oct 10 13:55:36 host a b: c", "Oct 10 13:55:36 host nginx[1: c", "<1", "<>x", "<34>1 a b", "<34>1 a b c d e [x", "<34>1 a b c d e x] y", "<34567>Oct 10 13:55:36 host nginx: x"} {
		assert.Equal(t, line, unwrapped(line))
	}
	for _, line := range []string{"2024-03-01T10:00:00Z stdout X a", "2024-03-01T10:00:00Z stdout", "2024-03-01T10:00:00Z stdin F a"} {
		_, _, _, ok := piece(line)
		assert.False(t, ok, line)
	}
	// Each part of such a line could be cut: it takes no longer than another one.
	assert.Error(t, formats[0].read(strings.Repeat("a | ", maxLine/4), new(values), new(Record)))
}

// TestSplitObjects joins the lines that Docker has split for its driver json-file.
func TestSplitObjects(t *testing.T) {
	object := func(stream, text string) string {
		return strings.Replace(jsonFile(text), `\n","stream":"stdout"`, `","stream":"`+stream+`"`, 1) + "\n"
	}
	agent := strings.Repeat("u", 20_000)
	line := strings.Replace(lineAt(0, "/a"), `"ua"`, `"`+agent+`"`, 1)
	s := NewStream(strings.NewReader(object("stdout", line[:16_384])+object("stderr", "an error")+jsonFile(line[16_384:])+"\n"+object("stdout", lineAt(1, "/b"))), nil)
	record := s.Next()
	require.NotNil(t, record)
	assert.Equal(t, []string{"/a", agent}, []string{record.Path, record.UserAgent})
	assert.Equal(t, []string{"/b"}, pathsOf(s.Next), "the end of the log ends the line")
	assert.EqualValues(t, 1, s.Stats().BadLines)
}

// TestObjectsWithoutBreaks reads the objects of Fluent Bit, which have the form of Docker's and
// no line breaks.
func TestObjectsWithoutBreaks(t *testing.T) {
	object := func(i int, path string) string {
		return strings.Replace(jsonFile(lineAt(i, path)), `\n","stream"`, `","stream"`, 1) + "\n"
	}
	s := NewStream(strings.NewReader(object(0, "/a")+object(1, "/b")+object(2, "/c")), nil)
	assert.Equal(t, []string{"/a", "/b", "/c"}, pathsOf(s.Next))
}

// TestSplitLines joins the lines that a container runtime has split, of two streams at once
// and across batches.
func TestSplitLines(t *testing.T) {
	var text strings.Builder
	var want []string
	for i := range 3_000 {
		path := fmt.Sprintf("/%d", i)
		line := lineAt(i, path)
		want = append(want, path)
		fmt.Fprintf(&text, "2024-03-01T10:00:00Z stdout P %s\n", line[:10])
		fmt.Fprintf(&text, "2024-03-01T10:00:00Z stderr P an error of %s\n", strings.Repeat("x", 100))
		fmt.Fprintf(&text, "2024-03-01T10:00:00Z stdout P %s\n", line[10:40])
		fmt.Fprintf(&text, "2024-03-01T10:00:00Z stdout F %s\n", line[40:])
		fmt.Fprintf(&text, "2024-03-01T10:00:00Z stderr F the program\n")
	}
	text.WriteString("2024-03-01T10:00:00Z stdout P " + lineAt(0, "/last"))
	s := NewStream(strings.NewReader(text.String()), nil)
	require.Equal(t, append(want, "/last"), pathsOf(s.Next))
	require.NoError(t, s.Err())
	assert.EqualValues(t, 6_001, s.Stats().Lines)
	assert.EqualValues(t, 3_000, s.Stats().BadLines)

	// A line without an end takes no more memory than the longest one.
	endless := strings.Repeat("2024-03-01T10:00:00Z stdout P "+strings.Repeat("x", 1000)+"\n", 5_000)
	s = NewStream(strings.NewReader(lineAt(0, "/a")+"\n"+endless), nil)
	assert.Equal(t, []string{"/a"}, pathsOf(s.Next))
	assert.EqualValues(t, 2, s.Stats().Lines)
	assert.Equal(t, "the line is too long", s.Stats().Samples[0].Problem)

	// Nothing is cut out of a line.
	agent := strings.Repeat("u", maxLine)
	line := lineAt(0, "/a")
	line = strings.Replace(line, `"ua"`, `"`+agent+`"`, 1)
	s = NewStream(strings.NewReader(lineAt(0, "/b")+"\n2024-03-01T10:00:00Z stdout P "+line[:maxLine]+"\n2024-03-01T10:00:00Z stdout F "+line[maxLine:]+"\n"), nil)
	assert.Equal(t, []string{"/b"}, pathsOf(s.Next))
	assert.EqualValues(t, 2, s.Stats().BadLines)
}

// TestFormatIsFoundLate reads a log that begins with more than a batch of other lines, and
// other JSON lines that have only a time.
func TestFormatIsFoundLate(t *testing.T) {
	other := `{"level":"info","ts":1646861401.1,"logger":"http.log","msg":"server running"}` + "\n"
	text, want := lines(100)
	s := NewStream(strings.NewReader(strings.Repeat(other, 5_000)+text+other+text), nil)
	assert.Equal(t, append(want, want...), pathsOf(s.Next))
	require.NoError(t, s.Err())
	assert.Equal(t, map[string]int64{"combined": 200}, s.Stats().Formats)
	assert.EqualValues(t, 5_001, s.Stats().BadLines)
	assert.Contains(t, []string{"no known log format reads it"}, s.Stats().Samples[0].Problem)

	s = NewStream(strings.NewReader(strings.Repeat(other, 5_000)), nil)
	assert.Nil(t, s.Next())
	assert.ErrorContains(t, s.Err(), "no known log format reads this log: tried common, ")
	assert.ErrorContains(t, s.Err(), "server running")

	s = NewStream(strings.NewReader(strings.Repeat("\n", 3*maxUnknown)+text), nil)
	assert.Equal(t, want, pathsOf(s.Next), "empty lines are none")

	for _, other := range []string{`{"time":"2024-03-01T10:00:00Z","msg":"reading","path":"/etc/app.yaml"}`, "time=2024-03-01T10:00:00Z url=http://payments/charge",
		`{"time":"2024-03-01T10:00:00Z","method":"runJob"}`, `{"time":"2024-03-01T10:00:00Z","request":"5f3a2"}`} {
		_, err := detect([]string{other})
		assert.Error(t, err, other)
	}

	s = NewStream(strings.NewReader(strings.Repeat("x\n", 3*maxUnknown)+text), nil)
	assert.Nil(t, s.Next())
	assert.ErrorContains(t, s.Err(), "no known log format reads this log")
}

// FuzzStream reads any text: each line is a record, a bad line, or about the log.
func FuzzStream(f *testing.F) {
	for _, wrap := range wraps {
		f.Add(wrap(examples[0].line) + "\n" + wrap(examples[len(examples)-1].line))
	}
	f.Add(iisFields + "\n" + iisLine + "\n#a: b\n" + cloudFront + "\n" + cloudLine)
	f.Add("2024-03-01T10:00:00Z stdout P a\n2024-03-01T10:00:00Z stdout F b\n<1>1 a b c d [x] y\n: #:\n<34>Oct 10 13:55:36 h n[]: x")
	f.Fuzz(func(t *testing.T, text string) {
		s := NewStream(strings.NewReader(text), nil)
		defer s.Close()
		read := int64(0)
		for r := s.Next(); r != nil; r = s.Next() {
			read++
		}
		stats := s.Stats()
		if stats.Lines != read+stats.BadLines {
			t.Errorf("%d lines, %d records and %d bad lines", stats.Lines, read, stats.BadLines)
		}
		if (s.Err() == nil) != (read > 0 || stats.Lines == 0) && !strings.HasPrefix(text, "\x1f\x8b") && !strings.HasPrefix(text, "\x28\xb5\x2f\xfd") {
			t.Errorf("%d records, and the error %v", read, s.Err())
		}
	})
}
