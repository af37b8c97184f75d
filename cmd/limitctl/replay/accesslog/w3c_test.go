package accesslog

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// In the form of learn.microsoft.com, "W3C Logging", and of docs.aws.amazon.com, "Standard logging
// (access logs)" of CloudFront.
const (
	iisFields  = "#Fields: date time s-ip cs-method cs-uri-stem cs-uri-query s-port cs-username c-ip cs(User-Agent) cs(Referer) sc-status sc-substatus sc-win32-status time-taken"
	iisLine    = "2024-03-12 08:10:02 10.0.0.1 GET /iisstart.htm a=1 80 al 192.0.2.7 Mozilla/5.0+(Windows+NT+10.0) - 200 0 0 15"
	cloudFront = "#Fields: date time x-edge-location sc-bytes c-ip cs-method cs(Host) cs-uri-stem sc-status cs(Referer) cs(User-Agent) cs-uri-query cs(Cookie) x-edge-result-type x-edge-request-id x-host-header cs-protocol cs-bytes time-taken x-forwarded-for"
	cloudLine  = "2019-12-04\t21:02:31\tLAX1\t392\t192.0.2.100\tGET\td111111abcdef8.cloudfront.net\t/index.html\t200\t-\tMozilla/5.0%20(Windows%20NT%2010.0)\t-\t-\tHit\tSOX4xwn4XV6Q4rgb7XiVGOHms_BGlTAC4KyHmureZmBNrjGdRLiNIQ==\tshop.example\thttps\t23\t0.001\t-"
)

// TestW3C reads logs whose fields are named in a line of their own, which may change.
func TestW3C(t *testing.T) {
	head := "#Software: Microsoft Internet Information Services 10.0\n#Version: 1.0\n#Date: 2024-03-12 08:10:02\n"
	short := "#Fields: time date cs-uri-stem c-ip\n"
	text := head + iisFields + "\n" + strings.Repeat(iisLine+"\n", 5_000) + "a bad line\n" + // more than a batch
		head + short + "08:10:03 2024-03-12 /b 192.0.2.8\n" + cloudFront + "\n" + cloudLine + "\n"
	s := NewStream(strings.NewReader(text), nil)
	var last []plain
	for r := s.Next(); r != nil; r = s.Next() {
		last = append(last, plainOf(r))
	}
	require.NoError(t, s.Err())
	require.Len(t, last, 5_002)
	assert.Equal(t, plain{Time: "2024-03-12T08:10:02Z", Client: "192.0.2.7", User: "al", Method: "GET", Path: "/iisstart.htm", Query: "a=1", Status: 200, Agent: "Mozilla/5.0 (Windows NT 10.0)"}, last[4_999])
	assert.Equal(t, plain{Time: "2024-03-12T08:10:03Z", Client: "192.0.2.8", Path: "/b"}, last[5_000])
	assert.Equal(t, plain{Time: "2019-12-04T21:02:31Z", Client: "192.0.2.100", Method: "GET", Path: "/index.html", Status: 200, Bytes: 392, Agent: "Mozilla/5.0 (Windows NT 10.0)", Host: "shop.example"}, last[5_001])
	stats := s.Stats()
	assert.Equal(t, map[string]int64{"w3c": 5_002}, stats.Formats)
	assert.EqualValues(t, 5_003, stats.Lines, "without those about the log")
	assert.EqualValues(t, 1, stats.BadLines)
	assert.False(t, isDirective("a: b") || isDirective(":") || isDirective("#: x") || isDirective("#a b: c"))

	for _, fields := range []string{"#Fields: date c-ip cs-uri-stem", "#Fields: date time c-ip", "#Fields:", "#Fields"} {
		assert.Nil(t, w3cFormat(fields))
	}
	f := w3cFormat(iisFields)
	for n := range len(iisLine) - len(" 15") {
		assert.Error(t, f.parse(iisLine[:n], new(values), new(Record)), fmt.Sprint(n))
	}
}

// TestCSV reads the forms of developers.cloudflare.com, "Log Output Options": csv and tsv with a
// header, which stands at the start of each batch.
func TestCSV(t *testing.T) {
	want := plain{Time: "2024-02-17T23:52:01Z", Client: "89.163.242.206", Method: "GET", Path: `/a"b,c`, Query: "v=2", Status: 200, Bytes: 69045, Agent: "Mozilla/5.0 (X11; Linux)", Host: "shop.example"}
	columns := []string{"ClientIP", "EdgeStartTimestamp", "RayID", "ClientRequestMethod", "ClientRequestHost", "ClientRequestURI", "EdgeResponseStatus", "EdgeResponseBytes", "ClientRequestUserAgent"}
	for _, stamp := range []string{`"2024-02-17T23:52:01Z"`, "1708213921000000000", "1708213921"} {
		values := []string{`"89.163.242.206"`, stamp, `"3a6050bcbe121a87"`, `"GET"`, `"shop.example"`, `"/a""b,c?v=2"`, "200", "69045", `"Mozilla/5.0 (X11; Linux)"`}
		for _, comma := range []string{",", "\t"} {
			batch := strings.Join(columns, comma) + "\n" + strings.Repeat(strings.Join(values, comma)+"\n", 2_000)
			s := NewStream(strings.NewReader(batch+"a,b\n"+batch), nil)
			n := 0
			for r := s.Next(); r != nil; r = s.Next() {
				assert.Equal(t, want, plainOf(r))
				n++
			}
			require.NoError(t, s.Err())
			assert.Equal(t, 4_000, n)
			assert.EqualValues(t, 4_001, s.Stats().Lines, "without the headers")
			assert.Equal(t, map[string]int64{"csv": 4_000}, s.Stats().Formats)
		}
	}
	for _, header := range []string{"", ",", "ClientIP", "ClientIP,EdgeStartTimestamp,RayID", "ClientIP,ClientRequestURI,RayID", "EdgeStartTimestamp,ClientRequestURI", `"ClientIP",EdgeStartTimestamp,ClientRequestURI`} {
		assert.Nil(t, csvFormat(header), header)
	}
}

// TestColumnsWithoutNames reads the same forms without a header.
func TestColumnsWithoutNames(t *testing.T) {
	for line, columns := range map[string]bool{
		`"192.0.2.1",1708213921,"GET","/a""b,c",200`: true, "192.0.2.1\t1708213921\tGET\t/a\t200": true,
		`a,b,c`: false, `{"a":1,"b":2,"c":3,"d":4}`: false, "no known form": false,
	} {
		s := NewStream(strings.NewReader(strings.Repeat(line+"\n", 3)), nil)
		assert.Nil(t, s.Next())
		if columns {
			assert.ErrorContains(t, s.Err(), "the log has columns without names: write their names in a line before them, such as EdgeStartTimestamp,ClientIP,")
			continue
		}
		assert.ErrorContains(t, s.Err(), "no known log format reads this log", line)
	}
}
