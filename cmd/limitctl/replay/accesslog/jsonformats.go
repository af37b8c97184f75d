package accesslog

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// The names of a field in JSON, the preferred one first.
type fieldNames map[target][]string

func jsonFormat(name string, names fieldNames, required ...target) *Format {
	t := &tree{required: required}
	for to, paths := range names {
		for rank, path := range paths {
			t.add(path, to, uint8(rank))
		}
	}
	t.root.index()
	return &Format{name: name, parse: parseJSON, tree: t}
}

// caddyFields are those of Caddy's logger http.log.access. Before version 2.5, the
// address had its port. Versions since 2.7 know the client behind trusted proxies.
var caddyFields = fieldNames{
	tTime:   {"ts"},
	tClient: {"request.client_ip", "request.remote_ip", "request.remote_addr"},
	tUser:   {"user_id"},
	tMethod: {"request.method"},
	tTarget: {"request.uri"},
	tStatus: {"status"},
	tBytes:  {"size"},
	tAgent:  {"request.headers.User-Agent"},
	tHost:   {"request.host"},
}

// traefikFields are those of Traefik's format json.
var traefikFields = fieldNames{
	tTime:   {"StartUTC", "StartLocal", "time"},
	tClient: {"ClientHost", "ClientAddr"},
	tUser:   {"ClientUsername"},
	tMethod: {"RequestMethod"},
	tTarget: {"RequestPath"},
	tStatus: {"DownstreamStatus", "OriginStatus"},
	tBytes:  {"DownstreamContentSize", "OriginContentSize"},
	tAgent:  {"request_User-Agent"},
	tHost:   {"RequestHost", "RequestAddr"},
}

// envoyFields are those of Istio's default, of Envoy Gateway's, and of the common
// choices for Envoy's json_format, which has no default.
var envoyFields = fieldNames{
	tTime:      {"start_time"},
	tForwarded: {"x_forwarded_for", "x-forwarded-for"},
	tMethod:    {"method", ":method"},
	tTarget:    {"x-envoy-origin-path", "x-envoy-original-path", "path", ":path"},
	tStatus:    {"response_code"},
	tBytes:     {"bytes_sent"},
	tAgent:     {"user_agent", "user-agent"},
	tHost:      {"authority", ":authority"},
}

// cloudflareFields are those of the Logpush data set http_requests.
var cloudflareFields = fieldNames{
	tTime:   {"EdgeStartTimestamp", "EdgeEndTimestamp"},
	tClient: {"ClientIP"},
	tMethod: {"ClientRequestMethod"},
	tTarget: {"ClientRequestURI", "ClientRequestPath"},
	tStatus: {"EdgeResponseStatus"},
	tBytes:  {"EdgeResponseBytes"},
	tAgent:  {"ClientRequestUserAgent"},
	tHost:   {"ClientRequestHost"},
}

// genericFields are names that programs and configurations of nginx use.
var genericFields = fieldNames{
	tTime: {"time", "ts", "timestamp", "@timestamp", "time_iso8601", "timestamp_iso8601", "time_local", "msec", "date", "datetime"},
	tClient: {"client_ip", "clientip", "clientIP", "remote_addr", "remote_ip", "remoteAddr", "remote_address", "remoteAddress",
		"client", "ip", "clientAddress", "client_addr", "source.ip", "client.ip", "client.address", "remote"},
	tUser:    {"user", "remote_user", "user_id", "userId", "username", "user.name", "user.id", "auth"},
	tMethod:  {"method", "request_method", "verb", "http_method", "http.request.method", "requestMethod", "request_type"},
	tTarget:  {"request_uri", "requestUri", "uri", "url", "target", "request_url", "path", "url.original", "url.path"},
	tQuery:   {"query", "args", "query_string", "url.query"},
	tStatus:  {"status", "status_code", "statusCode", "response_code", "http.response.status_code", "code"},
	tBytes:   {"bytes", "size", "body_bytes_sent", "bytes_sent", "response_size", "responseSize", "bytes_out", "http.response.body.bytes"},
	tAgent:   {"user_agent", "http_user_agent", "userAgent", "agent", "user_agent.original", "useragent"},
	tHost:    {"host", "http_host", "server_name", "vhost", "url.domain"},
	tRequest: {"request", "request_line"},
}

// targets are the names of fields as [JSON] takes them.
var targets = map[string]target{"time": tTime, "client": tClient, "user": tUser, "method": tMethod, "path": tTarget, "query": tQuery,
	"status": tStatus, "bytes": tBytes, "agent": tAgent, "host": tHost, "request": tRequest}

// JSON returns a format for lines of JSON objects. The keys of fields are time, client,
// user, method, path, query, status, bytes, agent, host, request (a whole request
// line), and for [Record].Fields "header NAME" or "cookie NAME". The values are names
// in the object, with dots for nested ones: "http.request.method". A field that is not
// in the map is found under its usual names.
//
// A time is RFC 3339, that of the common log format, or a number of seconds,
// milliseconds, microseconds or nanoseconds since 1970.
func JSON(fields map[string]string) (*Format, error) {
	names := maps.Clone(genericFields)
	f := &Format{}
	var errs []error
	text := []string{"json"}
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		path := fields[field]
		text = append(text, strings.Replace(field, " ", ":", 1)+"="+path)
		to, known := targets[field]
		if !known {
			label, ok := fieldLabel(field)
			switch {
			case !ok:
				errs = append(errs, fmt.Errorf("log format: field %q is unknown: write time, client, user, method, path, query, status, bytes, agent, host, request, header NAME or cookie NAME", field))
				continue
			case len(f.fields) == maxFields:
				errs = append(errs, fmt.Errorf("log format: more than %d headers and cookies: remove %q", maxFields, field))
				continue
			}
			to = tField + target(len(f.fields))
			f.fields = append(f.fields, label)
		}
		switch {
		case path == "":
			errs = append(errs, fmt.Errorf("log format: field %q has no name: write one, such as %[1]s=name", field))
		case len(path) > maxName:
			errs = append(errs, fmt.Errorf("log format: the name of field %q is longer than %d bytes", field, maxName))
		}
		names[to] = []string{path}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	made := jsonFormat(strings.Join(text, " "), names)
	made.fields = f.fields
	return made, nil
}

// fieldLabel returns the name of a field that the text grammar of package limit also
// uses for a key.
func fieldLabel(field string) (label string, ok bool) {
	kind, name, _ := strings.Cut(field, " ")
	switch {
	case name == "":
		return "", false
	case kind == "header":
		return "header " + http.CanonicalHeaderKey(name), true
	case kind == "cookie":
		return field, true
	}
	return "", false
}
