package accesslog

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"
)

// usualNames are the names of fields in JSON lines, with dots for nested objects, in lines with
// column names, and of the variables of a log_format. Of several names in a line, the first one
// counts. They are those of nginx, Caddy (request.…), Traefik (StartUTC, RequestMethod), Cloudflare
// Logpush (EdgeStartTimestamp, ClientRequestURI), Istio and Envoy Gateway (start_time, authority),
// HAProxy's manual (request_date, http_request), Elastic Common Schema (url.path), slog-gin and
// slog-echo (request.path, response.status), load balancers of Google Cloud (httpRequest.…) and
// Azure (properties.…), the W3C extended log format (c-ip), and what programs use.
const usualNames = `
time: StartUTC StartLocal EdgeStartTimestamp EdgeEndTimestamp start_time request_date date_time gmt_date_time
  local_date_time time ts timestamp timeStamp @timestamp time_iso8601 timestamp_iso8601 time_local msec date
  datetime
client: request.client_ip request.remote_ip request.remote_addr request.ip httpRequest.remoteIp
  properties.clientIP ClientHost ClientAddr ClientIP client_ip clientip clientIP remote_addr remote_ip remoteAddr
  remote_address remoteAddress client ip clientAddress client_addr source.ip client.ip client.address remote c-ip
peer: client:port
forwarded: request.headers.X-Forwarded-For request_X-Forwarded-For x_forwarded_for x-forwarded-for
  http_x_forwarded_for proxy_add_x_forwarded_for
user: ClientUsername user remote_user user_id userId username user.name user.id auth cs-username
method: request.method httpRequest.requestMethod properties.httpMethod RequestMethod ClientRequestMethod method
  :method request_method verb http_method http.request.method requestMethod request_type cs-method
path: request.uri request.path httpRequest.requestUrl properties.requestUri RequestPath ClientRequestURI
  ClientRequestPath x-envoy-origin-path x-envoy-original-path http_request_uri http_request_path request_uri
  requestUri uri document_uri url target request_url path :path url.original url.path cs-uri-stem
query: request.query http_request_query_string properties.requestQuery query args query_string url.query
  cs-uri-query
status: response.status httpRequest.status properties.httpStatus DownstreamStatus OriginStatus EdgeResponseStatus
  status status_code statusCode response_code http.response.status_code code sc-status
bytes: response.length httpRequest.responseSize properties.sentBytes DownstreamContentSize OriginContentSize
  EdgeResponseBytes bytes size body_bytes_sent bytes_sent bytes_read response_size responseSize bytes_out
  http.response.body.bytes http.response.body.size sc-bytes
agent: request.headers.User-Agent request.user-agent httpRequest.userAgent properties.userAgent request_User-Agent
  ClientRequestUserAgent user_agent user-agent http_user_agent userAgent agent user_agent.original useragent
  cs(user-agent)
host: request.host properties.host RequestHost RequestAddr ClientRequestHost authority :authority host http_host
  server_name vhost url.domain server.address x-host-header cs-host cs(host)
request: request request_line http_request
`

// fieldTargets are the names of fields in the text of a format, and in usualNames.
var fieldTargets = map[string]target{"time": toTime, "client": toClient, "user": toUser, "method": toMethod,
	"path": toPath, "query": toQuery, "status": toStatus, "bytes": toBytes, "agent": toAgent, "host": toHost,
	"request": toRequest, "peer": toPeer, "forwarded": toForwarded}

// A schema is the names of fields, and of the objects around them.
type schema struct {
	names   map[string]name
	objects map[string]bool
}

// newSchema returns the given names, and the usual ones of all other targets.
func newSchema(given map[string]name) *schema {
	s := &schema{names: make(map[string]name), objects: make(map[string]bool)}
	var isGiven [targets]bool
	for path, n := range given {
		isGiven[n.target] = true
		s.add(path, n)
	}
	var usual name
	for word := range strings.FieldsSeq(usualNames) {
		if field, ok := strings.CutSuffix(word, ":"); ok {
			usual = name{target: fieldTargets[field]}
			continue
		}
		usual.rank++
		if _, known := s.names[word]; !known && !isGiven[usual.target] {
			s.add(word, usual)
		}
	}
	return s
}

func (s *schema) add(path string, n name) {
	s.names[path] = n
	for at, c := range path {
		if c == '.' {
			s.objects[path[:at]] = true
		}
	}
}

// jsonFormat returns the format of JSON lines with some names given as FIELD=NAME.
func jsonFormat(text string, pairs []string) (*Format, error) {
	given := make(map[string]name)
	for _, pair := range pairs {
		field, path, _ := strings.Cut(pair, "=")
		to, known := fieldTargets[field]
		kind, header, _ := strings.Cut(field, ":")
		switch {
		case path == "":
			return nil, fmt.Errorf("log format: field %q has no name: write FIELD=NAME, such as time=ts", field)
		case known && to != toPeer && to != toForwarded:
			given[path] = name{target: to, rank: 1}
		case kind == "header" && header != "":
			given[path] = name{toField, 1, "header " + http.CanonicalHeaderKey(header)}
		case kind == "cookie" && header != "":
			given[path] = name{toField, 1, "cookie " + header}
		default:
			return nil, fmt.Errorf("log format: field %q is unknown: write time, client, user, method, path, query, "+
				"status, bytes, agent, host, request, header:NAME or cookie:NAME", field)
		}
	}
	return &Format{name: text, cut: newSchema(given).cut, loose: true}, nil
}

// cut finds the values in a line of JSON.
func (s *schema) cut(line string, v *values) error {
	if !strings.HasPrefix(strings.TrimSpace(line), "{") || !gjson.Valid(line) {
		return errJSON
	}
	s.find("", gjson.Parse(line), v)
	return nil
}

// find finds the values in an object. Names may also contain the dots themselves. Of a list,
// the first value counts, and of X-Forwarded-For all.
func (s *schema) find(prefix string, object gjson.Result, v *values) {
	object.ForEach(func(key, value gjson.Result) bool {
		path := key.Str
		if prefix != "" {
			path = prefix + "." + path
		}
		if value.IsObject() {
			if s.objects[path] {
				s.find(path, value, v)
			}
			return true
		}
		if n, ok := s.names[path]; ok {
			if value.IsArray() && n.target == toForwarded { // proxies have written the last ones
				var list []string
				for _, part := range value.Array() {
					list = append(list, part.String())
				}
				v.set(n, strings.Join(list, ", "))
			} else if value.IsArray() {
				value = value.Get("0")
			}
			switch value.Type { // of a list there is nothing left to set
			case gjson.String:
				v.set(n, value.Str)
			case gjson.Number, gjson.True, gjson.False:
				v.set(n, value.Raw)
			}
		}
		return true
	})
}

// cutPairs finds the values in a line of NAME=VALUE, where a value may be quoted as in Go.
func (s *schema) cutPairs(line string, v *values) error {
	for rest := strings.TrimSpace(line); rest != ""; rest = strings.TrimLeft(rest, " ") {
		path, value, found := strings.Cut(rest, "=")
		if !found || path == "" || strings.ContainsAny(path, " \"") {
			return errForm
		}
		if strings.HasPrefix(value, `"`) {
			quoted, err := strconv.QuotedPrefix(value)
			if err != nil {
				return errForm
			}
			rest = value[len(quoted):]
			value, _ = strconv.Unquote(quoted) // which QuotedPrefix has checked
		} else {
			value, rest, _ = strings.Cut(value, " ")
		}
		if n, known := s.names[path]; known {
			v.set(n, value)
		}
	}
	return nil
}
