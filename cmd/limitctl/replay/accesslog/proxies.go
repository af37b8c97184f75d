package accesslog

import "bytes"

// envoyFormat is the default format of Envoy:
//
//	[%START_TIME%] "%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%"
//	%RESPONSE_CODE% %RESPONSE_FLAGS% %BYTES_RECEIVED% %BYTES_SENT% %DURATION%
//	%RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% "%REQ(X-FORWARDED-FOR)%" "%REQ(USER-AGENT)%"
//	"%REQ(X-REQUEST-ID)%" "%REQ(:AUTHORITY)%" "%UPSTREAM_HOST%"
//
// The client is the last address of X-Forwarded-For, which Envoy has added itself.
func envoyFormat() *Format {
	f, err := LogFormat(`[$time_iso8601] "$request" $status $flags $received $bytes_sent $duration $upstream_time ` +
		`"$http_x_forwarded_for" "$http_user_agent" "$id" "$http_host" "$upstream"`)
	if err != nil {
		panic(err)
	}
	f.name = "envoy"
	return f
}

// parseHAProxy reads the HTTP format of HAProxy (option httplog), with or without what
// syslog writes before it:
//
//	haproxy[14389]: 10.0.1.2:33317 [06/Feb/2009:12:14:14.655] http-in static/srv1
//	10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 {1wt.eu} {} "GET /index.html HTTP/1.1"
//
// The time has no zone and is read as UTC.
func parseHAProxy(_ *Format, line []byte, r *Record) error {
	open := bytes.Index(line, []byte(" ["))
	// The process id in front of the client is in brackets too, but after no space.
	if open <= 0 {
		return errForm
	}
	client := line[bytes.LastIndexByte(line[:open], ' ')+1 : open]
	port := bytes.LastIndexByte(client, ':')
	if port <= 0 {
		return errForm
	}
	b := line[open+2:]
	closed := bytes.IndexByte(b, ']')
	if closed < 0 {
		return errForm
	}
	var ok bool
	if r.Time, ok = clfTime(b[:closed]); !ok {
		return errTime
	}
	if b, ok = space(b[closed+1:]); !ok {
		return errForm
	}
	var parts [10][]byte // frontend, backend, timers, status, bytes, 2 cookies, state, connections, queues
	for i := range parts {
		if parts[i], b, ok = cut(b); !ok {
			return errMissing
		}
	}
	if bytes.Count(parts[2], []byte("/")) != 4 {
		return errForm
	}
	if string(parts[3]) != "-1" && !r.setStatus(parts[3]) {
		return errStatus
	}
	// With "option logasap", sizes are written while the response goes on: "+2750".
	if !r.setBytes(bytes.TrimPrefix(parts[4], []byte("+"))) {
		return errBytes
	}
	// Captured headers stand in braces before the request.
	start := quote(b)
	if start < 0 || len(b) == 0 || b[len(b)-1] != '"' || start == len(b)-1 {
		return errForm
	}
	request := b[start+1 : len(b)-1]
	r.Client = client[:port]
	if len(r.Client) > 1 && r.Client[0] == '[' {
		r.Client = withoutPort(r.Client)
	}
	r.setRequest(request)
	return r.end(nil, nil)
}

// parseALB reads the access log of an AWS Application Load Balancer:
//
//	type time elb client:port target:port request_processing_time target_processing_time
//	response_processing_time elb_status_code target_status_code received_bytes sent_bytes
//	"request" "user_agent" ssl_cipher ssl_protocol target_group_arn "trace_id" …
//
// AWS adds fields at the end, so more of them are no error.
func parseALB(_ *Format, line []byte, r *Record) error {
	var parts [12][]byte
	b := line
	var ok bool
	for i := range parts {
		if parts[i], b, ok = cut(b); !ok {
			return errMissing
		}
	}
	switch string(parts[0]) {
	case "http", "https", "h2", "grpcs", "ws", "wss":
	default:
		return errForm
	}
	if r.Time, ok = isoTime(parts[1]); !ok {
		return errTime
	}
	if !r.setStatus(parts[8]) {
		return errStatus
	}
	if !r.setBytes(parts[11]) {
		return errBytes
	}
	request, b, ok1 := cutQuoted(b)
	b, ok2 := space(b)
	agent, b, ok3 := cutQuoted(b)
	if !ok1 || !ok2 || !ok3 || !quoted(b) {
		return errForm
	}
	r.Client = blank(albClient(parts[3]))
	r.setRequest(request)
	r.Host = withoutPort(r.Host)
	r.UserAgent = agent
	return r.end(nil, nil)
}

// albClient removes the port of an address, which for IPv6 has no brackets around it.
func albClient(b []byte) []byte {
	if len(b) > 0 && b[0] == '[' {
		return withoutPort(b)
	}
	if i := bytes.LastIndexByte(b, ':'); i >= 0 {
		return b[:i]
	}
	return b
}
