package accesslog

import (
	"fmt"
	"slices"
	"strings"
)

// A Format reads the lines of one kind of access log. Use [ParseFormat], [LogFormat],
// [JSON] or [Formats]. It is safe for concurrent use.
type Format struct {
	name   string
	parse  func(f *Format, line []byte, r *Record) error
	fields []string
	text   *template // of LogFormat
	tree   *tree     // of JSON
}

// String returns the name of the format, or the text that it was made from.
func (f *Format) String() string { return f.name }

// Fields returns the names of [Record].Fields, as the text grammar of package limit
// writes keys: "header X-Api-Key", "cookie session".
func (f *Format) Fields() []string { return slices.Clone(f.fields) }

// Parse reads a line without its line break into r, and sets all of r. The line is
// changed where it has escaped characters, unless Parse returns an error. The error
// says what is wrong with the line, without quoting it. Parse allocates nothing once
// r has room for its Fields.
func (f *Format) Parse(line []byte, r *Record) error {
	r.reset(f)
	return f.parse(f, line, r)
}

// A problem is what is wrong with a line.
type problem string

func (p problem) Error() string { return string(p) }

const (
	errForm    problem = "does not have the form of the format"
	errTime    problem = "the time is not one of the format"
	errStatus  problem = "the status is not a number"
	errBytes   problem = "the size is not a number"
	errMore    problem = "more text follows the last field"
	errJSON    problem = "not a JSON object"
	errMissing problem = "a field of the format is missing"
)

// formats lists the formats in the order in which Detect prefers them: a format that
// accepts less comes before one that accepts the same lines and more.
var formats = []*Format{
	{name: "common", parse: parseCommon},
	{name: "combined", parse: parseCombined},
	{name: "vhost_combined", parse: parseVhost},
	{name: "traefik", parse: parseTraefik},
	{name: "combined_more", parse: parseCombinedMore},
	envoyFormat(),
	{name: "haproxy", parse: parseHAProxy},
	{name: "alb", parse: parseALB},
	jsonFormat("caddy_json", caddyFields, tMethod, tTarget),
	jsonFormat("traefik_json", traefikFields, tClient, tMethod),
	jsonFormat("envoy_json", envoyFields, tMethod, tStatus),
	jsonFormat("cloudflare", cloudflareFields, tClient, tMethod),
	jsonFormat("json", genericFields),
}

// Formats returns the formats that [Detect] tries.
func Formats() []*Format { return slices.Clone(formats) }

func formatNames() string {
	names := make([]string, len(formats))
	for i, f := range formats {
		names[i] = f.name
	}
	return strings.Join(names, ", ")
}

// ParseFormat returns the format that a text names: that of one of [Formats], an nginx
// log_format, or "json" with names of fields, as in
// "json time=ts client=remote.addr path=req.url": see [JSON].
func ParseFormat(text string) (*Format, error) {
	text = strings.TrimSpace(text)
	for _, f := range formats {
		if f.name == text {
			return f, nil
		}
	}
	if strings.Contains(text, "$") {
		return LogFormat(text)
	}
	if rest, ok := strings.CutPrefix(text, "json "); ok {
		fields := make(map[string]string)
		for _, pair := range strings.Fields(rest) {
			// Headers and cookies have a space in their names: "header:X-Api-Key=key".
			name, path, ok := strings.Cut(pair, "=")
			if !ok {
				return nil, fmt.Errorf("log format: %q: write FIELD=NAME, such as time=ts", pair)
			}
			fields[strings.Replace(name, ":", " ", 1)] = path
		}
		return JSON(fields)
	}
	return nil, fmt.Errorf("log format: %q is unknown: write %s, json FIELD=NAME…, or an nginx log_format such as '$remote_addr [$time_local] \"$request\" $status'",
		text, formatNames())
}
