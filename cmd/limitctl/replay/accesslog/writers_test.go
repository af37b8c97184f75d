package accesslog

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/internal/must"
)

// A writer writes a record as a format does.
type writer struct {
	format string
	write  func(r *Record) string
	loses  func(p *plain) // what the format does not have
}

func or(s string) string {
	if s == "" {
		return "-"
	}
	return escape(s)
}

// escape escapes as nginx does, and spaces too.
func escape(s string) string {
	var out strings.Builder
	for _, c := range []byte(s) {
		if c <= ' ' || c > '~' || c == '"' || c == '\\' || c == '|' {
			fmt.Fprintf(&out, `\x%02X`, c)
		} else {
			out.WriteByte(c)
		}
	}
	return out.String()
}

func targetOf(r *Record) string {
	if r.Query != "" {
		return r.Path + "?" + r.Query
	}
	return r.Path
}

func requestOf(r *Record) string {
	if r.Method == "" {
		return "-"
	}
	return r.Method + " " + escape(targetOf(r)) + " HTTP/1.1"
}

func at(r *Record, layout string) string { return time.UnixMicro(r.Time).UTC().Format(layout) }

func writeCommon(r *Record) string {
	return fmt.Sprintf(`%s - %s [%s] "%s" %03d %d`, r.Client, or(r.User), at(r, "02/Jan/2006:15:04:05 -0700"), requestOf(r), r.Status, r.Bytes)
}

func writeCombined(r *Record) string {
	return writeCommon(r) + fmt.Sprintf(` "http://example.com/" "%s"`, or(r.UserAgent))
}

// object writes JSON. Bytes that are not UTF-8 stay as they are.
func object(pairs ...any) string {
	var out strings.Builder
	for i := 0; i < len(pairs); i += 2 {
		value, ok := pairs[i+1].(string)
		var text string
		if ok {
			var b strings.Builder
			for _, c := range []byte(value) {
				switch {
				case c == '"' || c == '\\':
					b.WriteByte('\\')
					b.WriteByte(c)
				case c < ' ':
					fmt.Fprintf(&b, `\u%04x`, c)
				default:
					b.WriteByte(c)
				}
			}
			text = `"` + b.String() + `"`
		} else if inner, is := pairs[i+1].(json.RawMessage); is {
			text = string(inner)
		} else {
			text = fmt.Sprint(pairs[i+1])
		}
		fmt.Fprintf(&out, `,"%s":%s`, pairs[i], text)
	}
	return "{" + strings.TrimPrefix(out.String(), ",") + "}"
}

const micros = "2006-01-02T15:04:05.000000Z"

func toSeconds(p *plain) {
	t, err := time.Parse("2006-01-02T15:04:05.999999Z", p.Time)
	if err != nil {
		panic(err)
	}
	p.Time = t.Truncate(time.Second).Format("2006-01-02T15:04:05Z")
}

func toMillis(p *plain) {
	t, err := time.Parse("2006-01-02T15:04:05.999999Z", p.Time)
	if err != nil {
		panic(err)
	}
	p.Time = t.Truncate(time.Millisecond).Format("2006-01-02T15:04:05.999Z")
}

var writers = []writer{
	{"common", writeCommon, func(p *plain) { toSeconds(p); p.Agent, p.Host = "", "" }},
	{"combined", writeCombined, func(p *plain) { toSeconds(p); p.Host = "" }},
	{"vhost_combined", func(r *Record) string { return or(r.Host) + ":443 " + writeCombined(r) }, toSeconds},
	{"combined_more", func(r *Record) string { return writeCombined(r) + ` "1.2.3.4"` }, func(p *plain) { toSeconds(p); p.Host = "" }},
	{"traefik", func(r *Record) string { return writeCombined(r) + ` 7 "r" "http://10.0.0.1:80" 5ms` }, func(p *plain) { toSeconds(p); p.Host = "" }},
	{"envoy", func(r *Record) string {
		return fmt.Sprintf(`[%s] "%s" %d - 1 %d 2 3 "%s" "%s" "id" "%s" "10.0.0.1:80"`, at(r, "2006-01-02T15:04:05.000Z"), requestOf(r), r.Status, r.Bytes, r.Client, or(r.UserAgent), or(r.Host))
	}, func(p *plain) { toMillis(p); p.User = "" }},
	{"haproxy", func(r *Record) string {
		return fmt.Sprintf(`haproxy[1]: %s:1234 [%s] in b/s 1/2/3/4/5 %d %d - - ---- 1/1/1/1/0 0/0 {x|y} "%s"`, r.Client, at(r, "02/Jan/2006:15:04:05.000"), r.Status, r.Bytes, requestOf(r))
	}, func(p *plain) { toMillis(p); p.User, p.Agent, p.Host = "", "", "" }},
	{"alb", func(r *Record) string {
		request := "- http://h:80- -"
		if r.Method != "" {
			request = fmt.Sprintf("%s https://%s:443%s HTTP/1.1", r.Method, escape(r.Host), escape(targetOf(r)))
		}
		return fmt.Sprintf(`h2 %s app/x/1 %s:99 10.0.0.1:80 0.1 0.2 0.3 %d %d 5 %d "%s" "%s" - - arn "t" "d"`, at(r, micros), r.Client, r.Status, r.Status, r.Bytes, request, or(r.UserAgent))
	}, func(p *plain) {
		if p.User = ""; p.Method == "" {
			p.Host = ""
		}
	}},
	{"json", func(r *Record) string {
		return object("ts", fmt.Sprintf("%d.%06d", r.Time/1e6, r.Time%1e6), "request", json.RawMessage(object("client_ip", r.Client, "remote_ip", "9.9.9.9",
			"method", r.Method, "uri", targetOf(r), "host", r.Host, "headers", json.RawMessage(`{"User-Agent":[`+strings.TrimSuffix(strings.TrimPrefix(object("", r.UserAgent), `{"":`), "}")+`]}`))),
			"user_id", r.User, "size", r.Bytes, "status", r.Status)
	}, nil},
	{"json", func(r *Record) string {
		return object("ClientHost", r.Client, "ClientUsername", r.User, "DownstreamStatus", r.Status, "DownstreamContentSize", r.Bytes,
			"RequestMethod", r.Method, "RequestPath", targetOf(r), "RequestHost", r.Host, "StartUTC", at(r, micros), "request_User-Agent", r.UserAgent)
	}, nil},
	{"json", func(r *Record) string {
		return object("start_time", at(r, micros), "method", r.Method, "path", targetOf(r), "response_code", r.Status, "bytes_sent", r.Bytes,
			"user_agent", r.UserAgent, "authority", r.Host, "x_forwarded_for", "6.6.6.6,"+r.Client)
	}, func(p *plain) { p.User = "" }},
	{"json", func(r *Record) string {
		return object("EdgeStartTimestamp", at(r, micros), "ClientIP", r.Client, "ClientRequestMethod", r.Method, "ClientRequestURI", targetOf(r),
			"EdgeResponseStatus", r.Status, "EdgeResponseBytes", r.Bytes, "ClientRequestUserAgent", r.UserAgent, "ClientRequestHost", r.Host)
	}, func(p *plain) { p.User = "" }},
	{"json", func(r *Record) string {
		return object("time", at(r, micros), "client_ip", r.Client, "user", r.User, "method", r.Method, "uri", targetOf(r), "status", r.Status,
			"bytes", r.Bytes, "user_agent", r.UserAgent, "host", r.Host)
	}, nil},
	{`$msec|$remote_addr|$remote_user|$request|$status|$body_bytes_sent|$http_user_agent|$host`, func(r *Record) string {
		return fmt.Sprintf("%d.%03d|%s|%s|%s|%d|%d|%s|%s", r.Time/1e6, r.Time/1e3%1e3, r.Client, or(r.User), requestOf(r), r.Status, r.Bytes, or(r.UserAgent), or(r.Host))
	}, toMillis},
}

// random returns a record with any bytes in the fields that clients choose. Some fields
// need a value in some formats: the fields that identify JSON.
func random(rnd *rand.Rand) *Record {
	text := func(not string) string {
		b := make([]byte, 1+rnd.IntN(12))
		for i := range b {
			for {
				b[i] = byte(rnd.IntN(256))
				if rnd.IntN(3) > 0 {
					b[i] = "abc/\"\\ []{}|<>%\x1b"[rnd.IntN(16)]
				}
				if !strings.ContainsRune(not, rune(b[i])) {
					break
				}
			}
		}
		if string(b) == "-" {
			return "x"
		}
		return string(b)
	}
	r := &Record{
		Time:   rnd.Int64N(9_000_000_000) * second, // to the year 2255, as far as a replay decides
		Status: 100 + rnd.IntN(500), Bytes: rnd.Int64N(1e12),
		Client: fmt.Sprintf("%d.%d.%d.%d", rnd.IntN(256), rnd.IntN(256), rnd.IntN(256), rnd.IntN(256)),
		Method: []string{"GET", "POST", "M-SEARCH", "DELETE"}[rnd.IntN(4)],
		Path:   "/" + text("?"),
		Host:   "www.example.com",
	}
	r.Time += rnd.Int64N(second)
	if rnd.IntN(2) == 0 {
		r.Query = text("")
	}
	if rnd.IntN(2) == 0 {
		r.User = text("")
	}
	if rnd.IntN(2) == 0 {
		r.UserAgent = text("")
	}
	return r
}

// TestRoundTrip checks that what a format writes is read as it was.
func TestRoundTrip(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, w := range writers {
		f := must.Get(ParseFormat(w.format))(t)
		for range 5_000 {
			r := random(rnd)
			line := w.write(r)
			var got Record
			require.NoError(t, f.parse(line, new(values), &got), "%s: %s", w.format, line)
			want := plainOf(r)
			if w.loses != nil {
				w.loses(&want)
			}
			require.Equal(t, want, plainOf(&got), "%s: %s", w.format, line)
		}
	}
}

// fuzz checks that a parser does not panic, and that a line that says the same is read
// alike.
func fuzz(f *testing.F, w writer) {
	format := must.Get(ParseFormat(w.format))(f)
	for _, e := range examples {
		f.Add(e.line)
	}
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		f.Add(w.write(random(rnd)))
	}
	f.Fuzz(func(t *testing.T, line string) {
		var r Record
		if format.parse(line, new(values), &r) != nil {
			return
		}
		assert.True(t, r.Time >= minTime && r.Time < maxTime && r.Status >= 0 && r.Bytes >= 0, "%+v", r)
		if !rewritable(&r) {
			return
		}
		want := plainOf(&r)
		if w.loses != nil {
			w.loses(&want)
		}
		again := w.write(&r)
		var got Record
		require.NoError(t, format.parse(again, new(values), &got), "%s", again)
		require.Equal(t, want, plainOf(&got), "%s", again)
	})
}

// rewritable reports whether the writers of tests can write a record that was read from
// any bytes: they escape what clients choose, but no addresses, and write no sizes of
// other forms.
func rewritable(r *Record) bool {
	simple := func(s string) bool {
		return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789.") == ""
	}
	clean := func(s string) bool { return s != "-" && strings.TrimSpace(s) == s }
	return simple(r.Client) && simple(r.Host) && len(r.Method) > 0 && isMethod(r.Method) && len(r.Method) <= 32 && len(r.Path) > 0 && r.Path[0] == '/' &&
		!strings.Contains(r.Path, "?") && clean(r.User) && clean(r.UserAgent) && r.Time > 0 && r.Time < 9e9*second
}

func FuzzCommon(f *testing.F)       { fuzz(f, writers[0]) }
func FuzzCombined(f *testing.F)     { fuzz(f, writers[1]) }
func FuzzVhost(f *testing.F)        { fuzz(f, writers[2]) }
func FuzzCombinedMore(f *testing.F) { fuzz(f, writers[3]) }
func FuzzTraefik(f *testing.F)      { fuzz(f, writers[4]) }
func FuzzEnvoy(f *testing.F)        { fuzz(f, writers[5]) }
func FuzzHAProxy(f *testing.F)      { fuzz(f, writers[6]) }
func FuzzALB(f *testing.F)          { fuzz(f, writers[7]) }
func FuzzCaddy(f *testing.F)        { fuzz(f, writers[8]) }
func FuzzTraefikJSON(f *testing.F)  { fuzz(f, writers[9]) }
func FuzzEnvoyJSON(f *testing.F)    { fuzz(f, writers[10]) }
func FuzzCloudflare(f *testing.F)   { fuzz(f, writers[11]) }
func FuzzJSON(f *testing.F)         { fuzz(f, writers[12]) }
func FuzzLogFormat(f *testing.F)    { fuzz(f, writers[13]) }

// FuzzFormatText checks that no text of a format makes ParseFormat or its parser panic.
func FuzzFormatText(f *testing.F) {
	for _, text := range []string{"combined", "$remote_addr [$time_local] \"$request\"", "json time=a.b client=a", "log_format x escape=json '$msec' ' $uri';", "${x", "$"} {
		f.Add(text, "line")
	}
	f.Fuzz(func(t *testing.T, text, line string) {
		if format, err := ParseFormat(text); err == nil {
			format.parse(line, new(values), new(Record))
		}
	})
}
