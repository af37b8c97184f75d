package accesslog

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/routelimit/limit/cmd/limitctl/internal/words"
)

// A Format reads the lines of one kind of access log. Use [ParseFormat]. It is safe for
// concurrent use.
type Format struct {
	name string
	cut  func(line string, v *values) error

	// Whether lines that are no requests have this form too: a request has a method and a
	// path, or a request line, which may be invalid, and a status.
	loose bool

	// Whether a line of the log names the fields of those behind it, and another may name others.
	headed bool
}

// String returns the name of the format, or the text that it was made from.
func (f *Format) String() string { return f.name }

// mayChange reports whether a line of the log can change the format: of a log whose format is not
// known yet, too.
func (f *Format) mayChange() bool { return f == nil || f.headed }

// namedBy returns the format whose fields a line names, or nil.
func namedBy(line string) *Format { return cmp.Or(w3cFormat(line), csvFormat(line)) }

// parse reads a line without its line break into r, and uses v on the way. The error says
// what is wrong with the line, without quoting it.
func (f *Format) parse(line string, v *values, r *Record) error {
	v.text, v.rank, v.fields = [targets]string{}, [targets]uint8{}, nil
	if err := f.cut(line, v); err != nil {
		return err
	}
	if err := v.record(r); err != nil {
		return err
	}
	if f.loose && (r.Method == "" || r.Path == "") && (v.text[toRequest] == "" || r.Status == 0) {
		return errNoRequest
	}
	return nil
}

// read is parse for a line that collectors of logs may have wrapped, such as docker compose -t
// with a service and a time.
func (f *Format) read(line string, v *values, r *Record) error {
	err := f.parse(line, v, r)
	for range maxWraps {
		if err == nil {
			break
		}
		text := unwrapped(line)
		if len(text) == len(line) {
			break
		}
		line, err = text, f.parse(text, v, r)
	}
	return err
}

const maxWraps = 3

const (
	common   = `$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent`
	combined = common + ` "$http_referer" "$http_user_agent"`
)

// formats lists the formats in the order in which detect prefers them: a format that
// accepts less comes before one that accepts the same lines and more.
var formats = []*Format{
	named("common", common),
	named("combined", combined),
	// Of Apache on Debian: the server's name and port come first.
	named("vhost_combined", "$host "+combined),
	named("traefik", combined+` $number "$router" "$server" ${duration}ms`),
	// Format "main" of the configuration that comes with nginx.
	named("combined_forwarded", combined+` "$http_x_forwarded_for"`),
	named("combined_more", combined+` $more`),
	named("envoy", `[$time_iso8601] "$request" $status $flags $received $bytes_sent $duration $upstream_time `+
		`"$http_x_forwarded_for" "$http_user_agent" "$id" "$http_host" "$upstream"`),
	// With or without what syslog writes before the client, and with captured headers.
	named("haproxy", `${client:port} [$time_local] $frontend $backend $timers $status $bytes_sent `+
		`$cookie $cookie $state $connections $queues $captured"$request"`),
	// AWS adds fields at the end.
	named("alb", `$type $time_iso8601 $elb ${client:port} $target_port $times $times $times $status $target_status `+
		`$received $bytes_sent "$request" "$http_user_agent" $more`),
	// Of Nginx Proxy Manager, log-proxy.conf.
	named("proxy_manager", `[$time_local] $cache $upstream_status $status - `+proxied+` [Sent-to $server]`+agents),
	named("proxy_manager_standard", `[$time_local] $status - `+proxied+agents),
	// Of gin.Logger, without colors.
	named("gin", `[GIN] $time_local | $status |$latency| $remote_addr | $request_method "$request_uri"`),
	{name: "json", cut: newSchema(nil).cut, loose: true},
	// Of the TextHandler of log/slog.
	{name: "logfmt", cut: newSchema(nil).cutPairs, loose: true},
}

const (
	proxied = `$request_method $scheme $host "$request_uri" [Client $remote_addr] [Length $body_bytes_sent] [Gzip $gzip_ratio]`
	agents  = ` "$http_user_agent" "$http_referer"`
)

func named(name, text string) *Format {
	f, err := logFormat(text)
	if err != nil {
		panic(err)
	}
	f.name = name
	return f
}

func formatNames() string {
	names := make([]string, len(formats))
	for i, f := range formats {
		names[i] = f.name
	}
	return strings.Join(names, ", ")
}

// ParseFormat returns the format that a text names:
//
//   - common, combined, vhost_combined, combined_forwarded, combined_more, traefik, envoy,
//     haproxy, alb, proxy_manager, proxy_manager_standard, gin, json or logfmt;
//   - an nginx log_format, alone or as it stands in nginx.conf. Variables of request
//     headers and cookies ($http_x_api_key, $cookie_session) become [Record].Fields.
//     $remote_addr is the client; without it, the last address of $http_x_forwarded_for;
//   - "json" with the names of fields in the objects, such as
//     "json time=ts client=remote.addr path=req.url header:X-Api-Key=key". A dot is for
//     nested objects. The fields are time, client, user, method, path, query, status, bytes,
//     agent, host, request (a whole request line), header:NAME and cookie:NAME. Fields that
//     are not given are found under their usual names.
func ParseFormat(text string) (*Format, error) {
	text = strings.TrimSpace(text)
	for _, f := range formats {
		if f.name == text {
			return f, nil
		}
	}
	if strings.Contains(text, "$") {
		return logFormat(text)
	}
	if fields, ok := strings.CutPrefix(text, "json "); ok {
		return jsonFormat(text, strings.Fields(fields))
	}
	return nil, fmt.Errorf("log format: %q is unknown: write %s, json FIELD=NAME…, or an nginx log_format "+
		"such as '$remote_addr [$time_local] \"$request\" $status'", text, formatNames())
}

// detect returns the format that reads the most of lines; of several, the first of formats. So a
// few lines of another program do not decide.
func detect(lines []string) (*Format, error) {
	var best *Format
	most := 0
	var v values
	var r Record
	for _, f := range formats {
		read := 0
		for _, line := range lines {
			if f.read(line, &v, &r) == nil {
				read++
			}
		}
		if read > most {
			best, most = f, read
		}
	}
	if line := lines[0]; best == nil && line[0] != '{' && max(strings.Count(line, ","), strings.Count(line, "\t")) > 2 {
		return nil, fmt.Errorf("the log has columns without names: write their names in a line before them, such as "+
			"EdgeStartTimestamp,ClientIP,ClientRequestMethod,ClientRequestURI,EdgeResponseStatus; the first line is %s", words.Quote(line))
	}
	if best == nil {
		return nil, fmt.Errorf("no known log format reads this log: tried %s, and w3c and csv, whose first line "+
			"names the fields; name the format, or write an nginx log_format or the fields of JSON lines; the first line is %s", formatNames(), words.Quote(lines[0]))
	}
	return best, nil
}
