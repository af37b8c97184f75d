package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/internal/must"
)

// lineAt returns a combined line of a second after the epoch of the tests.
func lineAt(second int, path string) string {
	return fmt.Sprintf(`192.0.2.1 - - [10/Oct/2000:%02d:%02d:%02d +0000] "GET %s HTTP/1.1" 200 5 "-" "ua"`, second/3600, second/60%60, second%60, path)
}

// pathsOf reads a stream to its end.
func pathsOf(next func() *Record) (paths []string) {
	for r := next(); r != nil; r = next() {
		paths = append(paths, r.Path)
	}
	return paths
}

func lines(n int) (text string, paths []string) {
	var b strings.Builder
	for i := range n {
		path := fmt.Sprintf("/%d", i)
		b.WriteString(lineAt(i%86400, path) + "\n")
		paths = append(paths, path)
	}
	return b.String(), paths
}

func gzipped(t *testing.T, text string) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	must.Get(io.WriteString(z, text))(t)
	require.NoError(t, z.Close())
	return b.Bytes()
}

func zstded(t *testing.T, text string) []byte {
	z := must.Get(zstd.NewWriter(nil))(t)
	return z.EncodeAll([]byte(text), nil)
}

// TestOrder checks that parallel parsing keeps the order, however the text arrives.
func TestOrder(t *testing.T) {
	text, want := lines(20_000)
	compressed := append(gzipped(t, text[:len(text)/2]), gzipped(t, text[len(text)/2:])...) // two members, as logs that were joined
	for name, r := range map[string]io.Reader{
		"plain":       strings.NewReader(text),
		"half reads":  iotest.HalfReader(strings.NewReader(text)),
		"no last eol": strings.NewReader(strings.TrimSuffix(text, "\n")),
		"crlf":        strings.NewReader(strings.ReplaceAll(text, "\n", "\r\n")),
		"gzip":        bytes.NewReader(compressed),
		"zstd":        bytes.NewReader(zstded(t, text)),
	} {
		t.Run(name, func(t *testing.T) {
			s := NewStream(r, nil)
			defer s.Close()
			require.Equal(t, want, pathsOf(s.Next))
			require.NoError(t, s.Err())
			stats := s.Stats()
			assert.EqualValues(t, 20_000, stats.Lines)
			assert.Zero(t, stats.BadLines)
			assert.Equal(t, map[string]int64{"combined": 20_000}, stats.Formats)
			assert.Empty(t, stats.Truncated)
		})
	}
}

func TestEmpty(t *testing.T) {
	for _, text := range []string{"", "\n\n\r\n"} {
		s := NewStream(strings.NewReader(text), nil)
		assert.Nil(t, s.Next())
		assert.NoError(t, s.Err())
		assert.Zero(t, s.Stats().Lines)
	}
}

// TestBadLines checks that each bad line is counted, and shown without control characters.
func TestBadLines(t *testing.T) {
	long := strings.Repeat("x", 10<<20)
	text := lineAt(1, "/a") + "\n\x1b[2Jbad <script>\xff\xfe\n\n" + long + "\n" + lineAt(2, "/b") + "\n" +
		`{"time":"2000-10-10T00:00:03Z","client_ip":"192.0.2.1","uri":"/c","method":"GET"}` + "\n" +
		lineAt(4, "/"+strings.Repeat("y", maxLine)) + "\n" + lineAt(5, "/d")[:60]
	for _, reader := range []io.Reader{strings.NewReader(text), iotest.HalfReader(strings.NewReader(text))} {
		s := NewStream(reader, nil)
		assert.Equal(t, []string{"/a", "/b"}, pathsOf(s.Next))
		require.NoError(t, s.Err())
		stats := s.Stats()
		assert.EqualValues(t, 7, stats.Lines)
		assert.EqualValues(t, 5, stats.BadLines)
		assert.Equal(t, map[string]int64{"combined": 2}, stats.Formats)
		require.Len(t, stats.Samples, 5)
		assert.Equal(t, BadLine{Line: 2, Problem: errForm.Error(), Text: `"\x1b[2Jbad <script>\xff\xfe"`}, stats.Samples[0])
		assert.Equal(t, int64(4), stats.Samples[1].Line)
		assert.Less(t, len(stats.Samples[1].Text), 300)
		for _, i := range []int{1, 3} {
			assert.Equal(t, "the line is too long", stats.Samples[i].Problem)
		}
		assert.Equal(t, []int64{6, 7, 8}, []int64{stats.Samples[2].Line, stats.Samples[3].Line, stats.Samples[4].Line})
	}
}

// TestByteOrderMark reads logs that begin as programs on Windows begin texts, compressed or not.
func TestByteOrderMark(t *testing.T) {
	const mark = "\ufeff"
	for name, text := range map[string]string{
		"combined": lineAt(0, "/") + "\n", "json": `{"time":"2024-05-01T12:00:00Z","remote_addr":"192.0.2.1","request":"GET / HTTP/1.1","status":200}` + "\n",
		"csv": "time,ip,method,path,status\n2024-05-01T12:00:00Z,192.0.2.1,GET,/,200\n",
		"w3c": "#Fields: date time c-ip cs-method cs-uri-stem sc-status\n2024-05-01 12:00:00 192.0.2.1 GET / 200\n",
	} {
		for _, log := range []io.Reader{strings.NewReader(mark + text), bytes.NewReader(gzipped(t, mark+text))} {
			s := NewStream(log, nil)
			r := s.Next()
			require.NotNil(t, r, name)
			assert.Equal(t, "192.0.2.1 /", r.Client+" "+r.Path, name)
			assert.Nil(t, s.Next(), name)
			require.NoError(t, s.Err(), name)
			assert.Zero(t, s.Stats().BadLines, name)
		}
	}
}

// TestCut checks logs that end early.
func TestCut(t *testing.T) {
	text, _ := lines(50_000)
	for name, whole := range map[string][]byte{"gzip": gzipped(t, text), "zstd": zstded(t, text)} {
		s := NewStream(bytes.NewReader(whole[:len(whole)*2/3]), nil)
		n := len(pathsOf(s.Next))
		assert.NoError(t, s.Err())
		assert.Greater(t, n, 1000, name)
		assert.NotEmpty(t, s.Stats().Truncated, name)
		assert.LessOrEqual(t, s.Stats().BadLines, int64(1))
	}
	s := NewStream(iotest.ErrReader(errors.New("disk failed")), nil)
	assert.Nil(t, s.Next())
	assert.ErrorContains(t, s.Err(), "disk failed")
	s = NewStream(bytes.NewReader([]byte{0x1f, 0x8b, 1, 2}), nil)
	assert.Nil(t, s.Next())
	assert.Error(t, s.Err())
}

func TestUnknownFormat(t *testing.T) {
	s := NewStream(strings.NewReader("hello\nworld\n"), nil)
	assert.Nil(t, s.Next())
	assert.ErrorContains(t, s.Err(), `no known log format reads this log: tried common, combined`)
	assert.ErrorContains(t, s.Err(), `the first line is "hello"`)
}

// TestClose checks that a stream can be left in the middle.
func TestClose(t *testing.T) {
	text, _ := lines(100_000)
	s := NewStream(strings.NewReader(text), nil)
	require.NotNil(t, s.Next())
	s.Close()
	s.Close()
}

func write(t *testing.T, dir, name string, data []byte) string {
	path := filepath.Join(dir, name)
	require.NoError(t, os.WriteFile(path, data, 0o600))
	return path
}

// TestMerge checks that rotated files are read in the order of their times, that files of
// several servers are merged, and that one wrong time does not hold up a file.
func TestMerge(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "access.log", []byte(lineAt(100, "/5")+"\n"+lineAt(120, "/7")+"\n"))
	write(t, dir, "access.log.1", []byte(lineAt(50, "/3")+"\n"+lineAt(60, "/4")+"\n"))
	write(t, dir, "access.log.2.gz", gzipped(t, lineAt(1, "/1")+"\n"+lineAt(2, "/2")+"\n"))
	future := strings.Replace(lineAt(103, "/c"), "2000", "2031", 1)
	write(t, dir, "access.log.other", []byte(lineAt(101, "/a")+"\n"+lineAt(102, "/b")+"\n"+future+"\n"+lineAt(104, "/d")+"\n"+lineAt(121, "/e")+"\n"))
	write(t, dir, "access.log.unknown", []byte("hello\n"))
	write(t, dir, "access.log.empty", nil)
	log := must.Get(Open([]string{filepath.Join(dir, "access.log*"), filepath.Join(dir, "access.log")}, nil))(t)
	defer log.Close()
	paths := pathsOf(log.Next)
	assert.Equal(t, []string{"/1", "/2", "/3", "/4", "/5", "/a", "/b", "/c", "/d", "/7", "/e"}, paths)
	stats := log.Stats()
	assert.EqualValues(t, 11, stats.Lines)
	failed := 0
	for _, f := range log.Files() {
		if f.Error != "" {
			failed++
			assert.Contains(t, f.Error, "access.log.unknown: no known log format")
		}
	}
	assert.Equal(t, 1, failed)
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	for pattern, want := range map[string]string{
		"-":                               "standard input",
		filepath.Join(dir, "none*"):       "matches no file",
		filepath.Join(dir, "["):           "syntax error",
		dir:                               "is a folder",
		write(t, dir, "x", []byte("x\n")): "no known log format",
	} {
		_, err := Open([]string{pattern}, nil)
		assert.ErrorContains(t, err, want, pattern)
	}
	_, err := Open(nil, nil)
	assert.ErrorContains(t, err, "no file")
}

func TestStdin(t *testing.T) {
	log := must.Get(Open([]string{"-"}, &Options{Stdin: strings.NewReader(lineAt(1, "/a") + "\n" + lineAt(2, "/b"))}))(t)
	defer log.Close()
	assert.Equal(t, []string{"/a", "/b"}, pathsOf(log.Next))
	assert.EqualValues(t, 2, log.Stats().Lines)
}

// TestWrongTime checks that a line without a valid time does not change the time of others.
func TestWrongTime(t *testing.T) {
	text := lineAt(5, "/a") + "\n" + strings.Replace(lineAt(5, "/b"), "/Oct/", "/Foo/", 1) + "\n" + lineAt(5, "/c") + "\n"
	s := NewStream(strings.NewReader(text), nil)
	first, second := s.Next(), s.Next()
	assert.Equal(t, []any{"/c", first.Time}, []any{second.Path, second.Time})
	assert.EqualValues(t, 1, s.Stats().BadLines)
}

// TestForeignLines checks that lines of other programs change nothing, wherever they stand: a
// format is that of a whole file.
func TestForeignLines(t *testing.T) {
	text, want := lines(4_000) // more than a batch
	log := strings.SplitAfter(text, "\n")
	foreign := []string{
		`{"time":"2000-10-10T00:00:03Z","client_ip":"192.0.2.1","uri":"/json","method":"GET","status":200}`,
		`[GIN] 2024/03/01 - 10:00:07 | 200 | 116.083µs | 192.0.2.1 | GET "/gin"`,
		`192.0.2.1 - - [10/Oct/2000:13:55:36 +0000] "GET /common HTTP/1.1" 200 5`,
		iisFields, iisLine, "ClientIP,EdgeStartTimestamp,ClientRequestURI", "#Version: 1.0", "a line",
	}
	for _, at := range []int{0, 1, 2_000, 4_000} {
		for n := range foreign {
			if at == 0 && (foreign[n] == iisFields || strings.HasPrefix(foreign[n], "ClientIP")) {
				continue // at the start of a file, it names the fields of the whole file
			}
			mixed := strings.Join(slices.Insert(slices.Clone(log), at, foreign[n]+"\n"), "")
			s := NewStream(strings.NewReader(mixed), nil)
			require.True(t, slices.Equal(want, pathsOf(s.Next)), foreign[n])
			require.NoError(t, s.Err())
			assert.Equal(t, map[string]int64{"combined": 4_000}, s.Stats().Formats)
			assert.EqualValues(t, 1, s.Stats().BadLines, foreign[n])
			assert.EqualValues(t, at+1, s.Stats().Samples[0].Line)
		}
	}
}
