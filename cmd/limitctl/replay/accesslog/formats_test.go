package accesslog

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/internal/must"
)

// plain is a Record that tests compare.
type plain struct {
	Time                                           string // RFC 3339 with microseconds
	Client, User, Method, Path, Query, Agent, Host string
	Status                                         int
	Bytes                                          int64
}

func plainOf(r *Record) plain {
	return plain{time.UnixMicro(r.Time).UTC().Format("2006-01-02T15:04:05.999999Z"), r.Client, r.User, r.Method,
		r.Path, r.Query, r.UserAgent, r.Host, r.Status, r.Bytes}
}

type example struct {
	name, format, line string
	want               plain
}

// examples are lines of the vendors' documentation, or of their form with other values.
var examples = []example{
	{
		// httpd.apache.org/docs/2.4/logs.html, "Common Log Format".
		name: "common", format: "common",
		line: `127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 2326`,
		want: plain{Time: "2000-10-10T20:55:36Z", Client: "127.0.0.1", User: "frank", Method: "GET", Path: "/apache_pb.gif", Status: 200, Bytes: 2326},
	},
	{
		// httpd.apache.org/docs/2.4/logs.html, "Combined Log Format".
		name: "combined", format: "combined",
		line: `127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 2326 "http://www.example.com/start.html" "Mozilla/4.08 [en] (Win98; I ;Nav)"`,
		want: plain{Time: "2000-10-10T20:55:36Z", Client: "127.0.0.1", User: "frank", Method: "GET", Path: "/apache_pb.gif", Status: 200, Bytes: 2326, Agent: "Mozilla/4.08 [en] (Win98; I ;Nav)"},
	},
	{
		// A user name with what delimits fields, and nginx's escapes (log_format, escape=default).
		name: "combined with a hostile user", format: "combined",
		line: `203.0.113.9 - a [x] - b [10/Oct/2000:13:55:36 +0000] "GET /\x22?q=\xD0\xB0 HTTP/1.1" 404 - "-" "-"`,
		want: plain{Time: "2000-10-10T13:55:36Z", Client: "203.0.113.9", User: "a [x] - b", Method: "GET", Path: `/"`, Query: "q=а", Status: 404},
	},
	{
		// What nginx writes for a TLS handshake on a plain port.
		name: "combined without a request", format: "combined",
		line: `203.0.113.9 - - [10/Oct/2000:13:55:36 +0000] "\x16\x03\x01\x02" 400 157 "-" "-"`,
		want: plain{Time: "2000-10-10T13:55:36Z", Client: "203.0.113.9", Status: 400, Bytes: 157},
	},
	{
		// Debian's apache2.conf: LogFormat "%v:%p %h %l %u %t \"%r\" %>s %O \"%{Referer}i\" \"%{User-Agent}i\"" vhost_combined.
		name: "vhost_combined", format: "vhost_combined",
		line: `www.example.com:443 2001:db8::1 - - [10/Oct/2000:13:55:36 +0200] "POST /login HTTP/1.1" 401 12 "-" "curl/8.5.0"`,
		want: plain{Time: "2000-10-10T11:55:36Z", Client: "2001:db8::1", Method: "POST", Path: "/login", Status: 401, Bytes: 12, Agent: "curl/8.5.0", Host: "www.example.com"},
	},
	{
		// nginx.conf as it comes with nginx: log_format main, with "$http_x_forwarded_for" at the end.
		name: "combined_forwarded", format: "combined_forwarded",
		line: `172.17.0.1 - - [10/Oct/2000:13:55:36 +0000] "GET / HTTP/1.1" 304 0 "-" "curl/8.5.0" "10.0.0.7, 10.0.0.8"`,
		want: plain{Time: "2000-10-10T13:55:36Z", Client: "172.17.0.1", Method: "GET", Path: "/", Status: 304, Agent: "curl/8.5.0"},
	},
	{
		// With fields of one's own behind those of combined.
		name: "combined_more", format: "combined_more",
		line: `172.17.0.1 - - [10/Oct/2000:13:55:36 +0000] "GET / HTTP/1.1" 304 0 "-" "curl/8.5.0" 0.005 "x"`,
		want: plain{Time: "2000-10-10T13:55:36Z", Client: "172.17.0.1", Method: "GET", Path: "/", Status: 304, Agent: "curl/8.5.0"},
	},
	{
		// doc.traefik.io/traefik/observability/access-logs, "Common Log Format" (CLF).
		name: "traefik", format: "traefik",
		line: `10.42.0.1 - admin [10/Oct/2000:13:55:36 +0000] "GET /api?x=1 HTTP/2.0" 200 1513 "-" "Mozilla/5.0" 86 "api@docker" "http://10.0.0.2:80" 3ms`,
		want: plain{Time: "2000-10-10T13:55:36Z", Client: "10.42.0.1", User: "admin", Method: "GET", Path: "/api", Query: "x=1", Status: 200, Bytes: 1513, Agent: "Mozilla/5.0"},
	},
	{
		// envoyproxy.io, Access logging, "Default Format String".
		name: "envoy", format: "envoy",
		line: `[2016-04-15T20:17:00.310Z] "POST /api/v1/locations HTTP/2" 204 - 154 0 226 100 "10.0.35.28" "nsq2http" "cc21d9b0-cf5c-432b-8c7e-98aeb7988cd2" "locations" "tcp://10.0.2.1:80"`,
		want: plain{Time: "2016-04-15T20:17:00.31Z", Client: "10.0.35.28", Method: "POST", Path: "/api/v1/locations", Status: 204, Agent: "nsq2http", Host: "locations"},
	},
	{
		name: "envoy with a forged X-Forwarded-For", format: "envoy",
		line: `[2016-04-15T20:17:00.310Z] "GET / HTTP/1.1" 200 - 0 7 1 1 "1.2.3.4,10.0.35.28" "-" "-" "example.com:8080" "-"`,
		want: plain{Time: "2016-04-15T20:17:00.31Z", Client: "10.0.35.28", Method: "GET", Path: "/", Status: 200, Bytes: 7, Host: "example.com"},
	},
	{
		// HAProxy Configuration Manual, 8.2.3 "HTTP log format", with syslog's prefix.
		name: "haproxy", format: "haproxy",
		line: `Feb  6 12:14:14 localhost haproxy[14389]: 10.0.1.2:33317 [06/Feb/2009:12:14:14.655] http-in static/srv1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 {1wt.eu} {} "GET /index.html HTTP/1.1"`,
		want: plain{Time: "2009-02-06T12:14:14.655Z", Client: "10.0.1.2", Method: "GET", Path: "/index.html", Status: 200, Bytes: 2750},
	},
	{
		// HAProxy Configuration Manual, 8.5 "Session state at disconnection": a client that timed out.
		name: "haproxy without a request", format: "haproxy",
		line: `haproxy[18113]: ::1:34549 [15/Dec/2003:15:19:36.031] px-http px-http/<NOSRV> -1/-1/-1/-1/50001 408 +2750 - - cR-- 2/2/2/0/0 0/0 "<BADREQ>"`,
		want: plain{Time: "2003-12-15T15:19:36.031Z", Client: "::1", Status: 408, Bytes: 2750},
	},
	{
		// AWS, "Access logs for your Application Load Balancer", example HTTPS entry.
		name: "alb", format: "alb",
		line: `https 2018-07-02T22:23:00.186641Z app/my-loadbalancer/50dc6c495c0c9188 192.168.131.39:2817 10.0.0.1:80 0.086 0.048 0.037 200 200 0 57 "GET https://www.example.com:443/a?b=c HTTP/1.1" "curl/7.46.0" ECDHE-RSA-AES128-GCM-SHA256 TLSv1.2 arn:aws:elasticloadbalancing:us-east-2:123456789012:targetgroup/my-targets/73e2d6bc24d8a067 "Root=1-58337281-1d84f3d73c47ec4e58577259" "www.example.com" "arn:aws:acm:us-east-2:123456789012:certificate/12345678-1234-1234-1234-123456789012" 1 2018-07-02T22:22:48.364000Z "authenticate,forward" "-" "-" "10.0.0.1:80" "200" "-" "-" TID_123456`,
		want: plain{Time: "2018-07-02T22:23:00.186641Z", Client: "192.168.131.39", Method: "GET", Path: "/a", Query: "b=c", Status: 200, Bytes: 57, Agent: "curl/7.46.0", Host: "www.example.com"},
	},
	{
		// caddyserver.com/docs/logging, example of an access log.
		name: "caddy", format: "json",
		line: `{"level":"info","ts":1646861401.5241024,"logger":"http.log.access","msg":"handled request","request":{"remote_ip":"127.0.0.1","remote_port":"41342","client_ip":"192.0.2.7","proto":"HTTP/2.0","method":"GET","host":"localhost","uri":"/p?a=1","headers":{"User-Agent":["curl/7.82.0"],"Accept":["*/*"],"Accept-Encoding":["gzip, deflate, br"]},"tls":{"resumed":false,"version":772,"cipher_suite":4865,"proto":"h2","server_name":"example.com"}},"bytes_read":0,"user_id":"","duration":0.000929675,"size":10900,"status":200,"resp_headers":{"Server":["Caddy"],"Content-Encoding":["gzip"]}}`,
		want: plain{Time: "2022-03-09T21:30:01.524102Z", Client: "192.0.2.7", Method: "GET", Path: "/p", Query: "a=1", Status: 200, Bytes: 10900, Agent: "curl/7.82.0", Host: "localhost"},
	},
	{
		// doc.traefik.io/traefik/observability/access-logs, "Available Fields" of format json.
		name: "traefik_json", format: "json",
		line: `{"ClientAddr":"10.42.0.1:51234","ClientHost":"10.42.0.1","ClientPort":"51234","ClientUsername":"-","DownstreamContentSize":19,"DownstreamStatus":404,"Duration":52345,"RequestAddr":"whoami.example","RequestHost":"whoami.example","RequestMethod":"GET","RequestPath":"/x?y=z","RequestProtocol":"HTTP/1.1","StartLocal":"2024-02-01T10:00:00.5+01:00","StartUTC":"2024-02-01T09:00:00.5Z","entryPointName":"web","level":"info","msg":"","request_User-Agent":"Go-http-client/1.1","time":"2024-02-01T09:00:01Z"}`,
		want: plain{Time: "2024-02-01T09:00:00.5Z", Client: "10.42.0.1", Method: "GET", Path: "/x", Query: "y=z", Status: 404, Bytes: 19, Agent: "Go-http-client/1.1", Host: "whoami.example"},
	},
	{
		// istio.io/latest/docs/tasks/observability/logs/access-log, the JSON of its default format.
		name: "envoy_json", format: "json",
		line: `{"authority":"httpbin:8000","bytes_received":0,"bytes_sent":135,"connection_termination_details":null,"downstream_local_address":"10.101.1.1:8000","downstream_remote_address":"10.44.1.27:35964","duration":3,"method":"GET","path":"/status/418","protocol":"HTTP/1.1","request_id":"e25b9bd1","response_code":418,"response_flags":"-","start_time":"2020-11-25T21:26:18.409Z","upstream_host":"10.44.1.23:80","user_agent":"curl/7.73.0-DEV","x_forwarded_for":"9.9.9.9, 10.44.1.27"}`,
		want: plain{Time: "2020-11-25T21:26:18.409Z", Client: "10.44.1.27", Method: "GET", Path: "/status/418", Status: 418, Bytes: 135, Agent: "curl/7.73.0-DEV", Host: "httpbin"},
	},
	{
		// developers.cloudflare.com/logs, data set http_requests, with timestamps in nanoseconds.
		name: "cloudflare", format: "json",
		line: `{"ClientIP":"89.163.242.206","ClientRequestHost":"www.theburritobot.com","ClientRequestMethod":"GET","ClientRequestURI":"/static/img/testimonial-hipster.png?v=2","ClientRequestUserAgent":"Mozilla/5.0 (X11)","EdgeEndTimestamp":1506702504461999900,"EdgeResponseBytes":69045,"EdgeResponseStatus":200,"EdgeStartTimestamp":1506702504433000200,"RayID":"3a6050bcbe121a87"}`,
		want: plain{Time: "2017-09-29T16:28:24.433Z", Client: "89.163.242.206", Method: "GET", Path: "/static/img/testimonial-hipster.png", Query: "v=2", Status: 200, Bytes: 69045, Agent: "Mozilla/5.0 (X11)", Host: "www.theburritobot.com"},
	},
	{
		// An nginx log_format with escape=json, as its documentation shows the directive.
		name: "json", format: "json",
		line: `{"time_local":"10/Oct/2000:13:55:36 +0000","remote_addr":"192.0.2.1","remote_user":"j\u00f6rg","request":"GET /a\"b?c HTTP/1.1","status":"200","body_bytes_sent":"5","http_user_agent":"x"}`,
		want: plain{Time: "2000-10-10T13:55:36Z", Client: "192.0.2.1", User: "jörg", Method: "GET", Path: `/a"b`, Query: "c", Status: 200, Bytes: 5, Agent: "x"},
	},
	{
		// In the form of haproxy.com/blog/encoding-haproxy-logs-in-machine-readable-json-or-cbor, of
		// HAProxy 3.0, with the names of its manual.
		name: "haproxy_json", format: "json",
		line: `{"client_ip": "10.0.1.2", "client_port": 33317, "request_date": "06/Feb/2009:12:14:14.655", "fe_name_transport": "http-in", "be_name": "static", "server_name": "srv1", "time_request": 10, "status_code": 200, "bytes_read": 2750, "captured_request_cookie": null, "http_request": "GET /index.html?a=1 HTTP/1.1"}`,
		want: plain{Time: "2009-02-06T12:14:14.655Z", Client: "10.0.1.2", Method: "GET", Path: "/index.html", Query: "a=1", Status: 200, Bytes: 2750, Host: "srv1"},
	},
	{
		// Elastic Common Schema, as nested objects.
		name: "json, nested", format: "json",
		line: `{"@timestamp":"2024-02-01T09:00:00Z","client":{"ip":"192.0.2.1"},"http":{"request":{"method":"PUT"},"response":{"status_code":201,"body":{"bytes":3}}},"url":{"path":"/x","query":"y=1","domain":"h"},"user":{"name":"al"},"user_agent":{"original":"ua"}}`,
		want: plain{Time: "2024-02-01T09:00:00Z", Client: "192.0.2.1", User: "al", Method: "PUT", Path: "/x", Query: "y=1", Status: 201, Bytes: 3, Agent: "ua", Host: "h"},
	},
	{
		// Elastic Common Schema, with dots in the names.
		name: "json, dots", format: "json",
		line: `{"@timestamp":"2024-02-01T09:00:00Z","client.ip":"192.0.2.1","http.request.method":"PUT","url.path":"/x","http.response.status_code":201}`,
		want: plain{Time: "2024-02-01T09:00:00Z", Client: "192.0.2.1", Method: "PUT", Path: "/x", Status: 201},
	},
	{
		// NginxProxyManager/nginx-proxy-manager, log-proxy.conf, format proxy.
		name: "proxy_manager", format: "proxy_manager",
		line: `[31/Jul/2024:17:53:30 +0000] - 200 200 - GET https shop.example "/favicon.ico?v=1" [Client 192.0.2.7] [Length 14908] [Gzip -] [Sent-to 172.18.0.1] "Mozilla/5.0 (X11)" "-"`,
		want: plain{Time: "2024-07-31T17:53:30Z", Client: "192.0.2.7", Method: "GET", Path: "/favicon.ico", Query: "v=1", Status: 200, Bytes: 14908, Agent: "Mozilla/5.0 (X11)", Host: "shop.example"},
	},
	{
		name: "proxy_manager_standard", format: "proxy_manager_standard",
		line: `[31/Jul/2024:17:53:30 +0000] 404 - GET http localhost "/x" [Client 2001:db8::1] [Length 150] [Gzip 2.1] "curl/8.5.0" "-"`,
		want: plain{Time: "2024-07-31T17:53:30Z", Client: "2001:db8::1", Method: "GET", Path: "/x", Status: 404, Bytes: 150, Agent: "curl/8.5.0", Host: "localhost"},
	},
	{
		// gin.Logger of Gin 1.11, to a file.
		name: "gin", format: "gin",
		line: `[GIN] 2024/03/01 - 10:00:07 | 401 |     116.083µs |       192.0.2.1 | POST     "/login?next=/"`,
		want: plain{Time: "2024-03-01T10:00:07Z", Client: "192.0.2.1", Method: "POST", Path: "/login", Query: "next=/", Status: 401},
	},
	{
		// middleware.Logger of Echo v4.
		name: "echo", format: "json",
		line: `{"time":"2024-03-01T10:00:07.25Z","id":"","remote_ip":"192.0.2.1","host":"api.example","method":"GET","uri":"/x?y=1","user_agent":"curl/8.5.0","status":200,"error":"","latency":61583,"latency_human":"61.583µs","bytes_in":0,"bytes_out":2}`,
		want: plain{Time: "2024-03-01T10:00:07.25Z", Client: "192.0.2.1", Method: "GET", Path: "/x", Query: "y=1", Status: 200, Bytes: 2, Agent: "curl/8.5.0", Host: "api.example"},
	},
	{
		// slog.NewJSONHandler with the groups of samber/slog-gin.
		name: "slog", format: "json",
		line: `{"time":"2024-03-01T10:00:07Z","level":"INFO","msg":"Incoming request","request":{"time":"2024-03-01T10:00:06Z","method":"GET","host":"api.example","path":"/x","query":"y=1","route":"/x","ip":"192.0.2.1","length":0},"response":{"time":"2024-03-01T10:00:07Z","latency":1500,"status":200,"length":12}}`,
		want: plain{Time: "2024-03-01T10:00:07Z", Client: "192.0.2.1", Method: "GET", Path: "/x", Query: "y=1", Status: 200, Bytes: 12, Host: "api.example"},
	},
	{
		// slog.NewTextHandler.
		name: "logfmt", format: "logfmt",
		line: `time=2024-03-01T10:00:07.250+01:00 level=INFO msg="handled request" method=GET path="/a b" status=200 remote_addr=192.0.2.1:51000 user_agent="curl \"8\""`,
		want: plain{Time: "2024-03-01T09:00:07.25Z", Client: "192.0.2.1", Method: "GET", Path: "/a b", Status: 200, Agent: `curl "8"`},
	},
	{
		// slog.NewTextHandler with the groups of samber/slog-http.
		name: "slog groups", format: "logfmt",
		line: `time=2024-03-01T10:00:07Z level=INFO msg="200: OK" request.time=2024-03-01T10:00:06Z request.method=GET request.host=api.example request.path=/x request.query="y=1" request.ip=192.0.2.1:5555 request.user-agent=curl/8.5.0 response.status=200 response.length=12`,
		want: plain{Time: "2024-03-01T10:00:07Z", Client: "192.0.2.1", Method: "GET", Path: "/x", Query: "y=1", Status: 200, Bytes: 12, Agent: "curl/8.5.0", Host: "api.example"},
	},
	{
		// go-chi/httplog with its schema for OpenTelemetry.
		name: "httplog", format: "json",
		line: `{"timestamp":"2024-03-01T10:00:07Z","severity_text":"INFO","body":"GET /x => HTTP 200","url.full":"http://api.example/x?y=1","http.request.method":"GET","url.path":"/x","client.address":"192.0.2.1:5555","server.address":"api.example","user_agent.original":"curl/8.5.0","http.response.status_code":200,"http.response.body.size":12}`,
		want: plain{Time: "2024-03-01T10:00:07Z", Client: "192.0.2.1", Method: "GET", Path: "/x", Status: 200, Bytes: 12, Agent: "curl/8.5.0", Host: "api.example"},
	},
	{
		// In the form of cloud.google.com/load-balancing/docs/https/https-logging-monitoring.
		name: "Google Cloud", format: "json",
		line: `{"httpRequest":{"latency":"0.02s","remoteIp":"192.0.2.1","requestMethod":"GET","requestSize":"400","requestUrl":"https://shop.example/cart?id=1","responseSize":"700","status":200,"userAgent":"curl/8.5.0"},"insertId":"x","timestamp":"2024-03-01T10:00:07.5Z","jsonPayload":{"statusDetails":"response_sent_by_backend"}}`,
		want: plain{Time: "2024-03-01T10:00:07.5Z", Client: "192.0.2.1", Method: "GET", Path: "/cart", Query: "id=1", Status: 200, Bytes: 700, Agent: "curl/8.5.0", Host: "shop.example"},
	},
	{
		// In the form of learn.microsoft.com, Application Gateway v2 access log.
		name: "Azure", format: "json",
		line: `{"timeStamp":"2021-10-14T22:17:11+00:00","category":"ApplicationGatewayAccessLog","properties":{"instanceId":"appgw_2","clientIP":"191.96.249.97","httpMethod":"GET","requestUri":"/phpmyadmin/scripts/setup.php","userAgent":"-","httpStatus":404,"httpVersion":"HTTP/1.1","receivedBytes":65,"sentBytes":553,"host":"20.110.30.194"}}`,
		want: plain{Time: "2021-10-14T22:17:11Z", Client: "191.96.249.97", Method: "GET", Path: "/phpmyadmin/scripts/setup.php", Status: 404, Bytes: 553, Host: "20.110.30.194"},
	},
}

func TestExamples(t *testing.T) {
	for _, e := range examples {
		t.Run(e.name, func(t *testing.T) {
			f := must.Get(detect([]string{e.line}))(t)
			require.Equal(t, e.format, f.String())
			var r Record
			require.NoError(t, f.parse(e.line, new(values), &r))
			assert.Equal(t, e.want, plainOf(&r))
		})
	}
}

// TestTruncated checks that the beginning of a line is never read as a whole one by the
// format of the line.
func TestTruncated(t *testing.T) {
	for _, e := range examples {
		f := must.Get(ParseFormat(e.format))(t)
		var r Record
		shortest := len(e.line)
		switch e.format {
		case "common": // whose last field is a number: "23" may be one of "2326"
			shortest = strings.LastIndexByte(e.line, ' ')
		case "combined_forwarded": // without its last field it is combined
			shortest = strings.Index(e.line, `"curl`)
		case "alb", "combined_more": // which end with optional fields
			shortest = strings.Index(e.line, `"curl`)
		case "logfmt": // any beginning of which with a request is one
			shortest = strings.Index(e.line, "method=")
		}
		for n := range shortest {
			assert.Error(t, f.parse(e.line[:n], new(values), &r), "%s: %s", e.name, e.line[:n])
		}
	}
}

func TestTimes(t *testing.T) {
	for _, e := range []struct {
		text, want string // "" if it is none
	}{
		{"2024-02-29T23:59:59Z", "2024-02-29T23:59:59Z"},
		{"2023-02-29T23:59:59Z", ""},
		{"1900-02-29T00:00:00Z", ""},
		{"2000-02-29T00:00:00Z", "2000-02-29T00:00:00Z"},
		{"0000-01-01T00:00:00Z", "0000-01-01T00:00:00Z"},
		{"0000-01-01T00:00:00+01:00", ""},
		{"9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999999Z"},
		{"9999-12-31T23:59:59-01:00", ""},
		{"2024-01-01 10:00:00,5 +0130", "2024-01-01T08:30:00.5Z"},
		{"2024-01-01T10:00:00.", ""},
		{"2024-01-01T10:00:00+25:00", ""},
		{"2024-13-01T10:00:00Z", ""},
		{"2024-01-01T24:00:00Z", ""},
		{"31/Dec/9999:23:59:59 +0000", "9999-12-31T23:59:59Z"},
		{"01/Jan/0000:00:00:00 +0000", "0000-01-01T00:00:00Z"},
		{"31/Foo/2000:00:00:00 +0000", ""},
		{"1646861401.5241024", "2022-03-09T21:30:01.524102Z"},
		{"1646861401", "2022-03-09T21:30:01Z"},
		{"1646861401524", "2022-03-09T21:30:01.524Z"},
		{"1646861401524102", "2022-03-09T21:30:01.524102Z"},
		{"1646861401524102400", "2022-03-09T21:30:01.524102Z"},
		{"1.5e9", ""},
		{"-1", "1969-12-31T23:59:59Z"},
		{"NaN", ""}, {"1e300", ""}, {"-", ""}, {"x", ""}, {"99999999999999999999", ""}, {"1.5.5", ""},
	} {
		got := ""
		if micros, ok := parseTime(e.text); ok {
			got = time.UnixMicro(micros).UTC().Format("2006-01-02T15:04:05.999999Z")
		}
		assert.Equal(t, e.want, got, e.text)
	}
}

func TestLogFormat(t *testing.T) {
	// nginx.org, ngx_http_log_module, the example of log_format.
	f := must.Get(ParseFormat(`log_format compression '$remote_addr - $remote_user [$time_local] '
                       '"$request" $status $bytes_sent '
                       '"$http_referer" "$http_user_agent" "$gzip_ratio"';`))(t)
	var r Record
	require.NoError(t, f.parse(`192.0.2.1 - - [10/Oct/2000:13:55:36 +0000] "GET /a?b HTTP/1.1" 200 12 "-" "x \x22y" "2.1"`, new(values), &r))
	assert.Equal(t, plain{Time: "2000-10-10T13:55:36Z", Client: "192.0.2.1", Method: "GET", Path: "/a", Query: "b", Agent: `x "y`, Status: 200, Bytes: 12}, plainOf(&r))

	f = must.Get(ParseFormat(`$msec|$http_x_forwarded_for|$request_method|$uri|$args|$status|$http_x_api_key|$cookie_sid`))(t)
	require.NoError(t, f.parse(`1646861401.524|1.1.1.1, 2.2.2.2|GET|/a|b=c|200|k1|-`, new(values), &r))
	assert.Equal(t, plain{Time: "2022-03-09T21:30:01.524Z", Client: "2.2.2.2", Method: "GET", Path: "/a", Query: "b=c", Status: 200}, plainOf(&r))
	assert.Equal(t, map[string]string{"header X-Api-Key": "k1"}, r.Fields)

	f = must.Get(ParseFormat(`log_format j escape=json '{"t":"$time_iso8601","u":"$remote_user","r":"$request"}';`))(t)
	require.NoError(t, f.parse(`{"t":"2024-01-01T00:00:00+00:00","u":"a\"b\u00e9","r":"GET / HTTP/1.1"}`, new(values), &r))
	assert.Equal(t, plain{Time: "2024-01-01T00:00:00Z", User: `a"bé`, Method: "GET", Path: "/"}, plainOf(&r))

	for text, want := range map[string]string{
		"$remote_addr$time_local $request":      "cannot be told apart",
		"$remote_addr $request":                 "no time",
		"$time_local $status":                   "no path",
		"$time_local $ $request":                "name of a variable",
		"log_format main $time_local $request;": "single quotes",
		"nonsense":                              "is unknown",
		"json time":                             "FIELD=NAME",
		"json tim=x":                            `field "tim" is unknown`,
		"json time=":                            "has no name",
	} {
		_, err := ParseFormat(text)
		assert.ErrorContains(t, err, want, text)
	}
}

func TestJSON(t *testing.T) {
	f := must.Get(ParseFormat("json time=a.t client=from header:x-api-key=h.key path=p"))(t)
	var r Record
	require.NoError(t, f.parse(` { "a" : {"t":"2024-01-01T00:00:00Z","x":[1,{"y":[]},"z"]} , "from":"[2001:db8::1]:80","h":{"key":["k\u0031","k2"]},"p":"\/x","status":null,"method":"GET"} `, new(values), &r))
	assert.Equal(t, plain{Time: "2024-01-01T00:00:00Z", Client: "2001:db8::1", Method: "GET", Path: "/x"}, plainOf(&r))
	assert.Equal(t, map[string]string{"header X-Api-Key": "k1"}, r.Fields)

	deep := `{"a":{"t":1},"x":` + strings.Repeat("[", 1_000_000)
	for _, line := range []string{"", "{", "{}", "[]", `{"a":{"t":"x"}}`, `{"a":{"t":1}} x`, `{"a":{"t":1}`, `{"a":{"t":1},}`, `{"a":{"t":1},"s":tru}`,
		`{"a":{"t":1},"status":"x"}`, `{"a":{"t":1},"bytes":-5}`, `{"a" 1}`, `{a:1}`, `{"a`, deep} {
		assert.Error(t, f.parse(line, new(values), &r), "%.40s", line)
	}
}

func TestDetectUnknown(t *testing.T) {
	_, err := detect([]string{"\x1b[31mhello <b>\xff"})
	assert.ErrorContains(t, err, "tried common, combined, vhost_combined, traefik, combined_forwarded, combined_more, envoy, haproxy, alb, proxy_manager, proxy_manager_standard, gin, json, logfmt, and w3c and csv, whose first line names the fields;")
	assert.ErrorContains(t, err, `the first line is "\x1b[31mhello <b>\xff"`)
}
