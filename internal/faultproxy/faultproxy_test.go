package faultproxy

import (
	"bufio"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/internal/redistest"
)

func TestReplies(t *testing.T) {
	whole := []string{
		"+OK\r\n", "-ERR no\r\n", ":1\r\n", "_\r\n", "#t\r\n", ",1.5\r\n", "(12\r\n", "$-1\r\n", "$0\r\n\r\n", "$4\r\na\r\nb\r\n", "=5\r\ntxt:a\r\n",
		"*0\r\n", "*-1\r\n", "*2\r\n:1\r\n*1\r\n$1\r\nx\r\n", "~1\r\n:1\r\n", "%1\r\n+a\r\n:1\r\n", "|1\r\n+a\r\n:1\r\n:2\r\n", ">2\r\n+a\r\n:1\r\n",
	}
	r := bufio.NewReader(strings.NewReader(strings.Join(whole, "")))
	for _, want := range whole {
		got, _, err := Read(r)
		require.NoError(t, err)
		assert.Equal(t, want, string(got))
	}
	for _, bad := range []string{"", "\r\n", "?\r\n", "$x\r\n", "$5\r\nab", "*1\r\n"} {
		_, _, err := Read(bufio.NewReader(strings.NewReader(bad)))
		assert.Error(t, err, "%q", bad)
	}
}

// TestFaults has each fault do to a client what it says.
func TestFaults(t *testing.T) {
	direct := redistest.Real(t)
	proxy := Start(t, direct.Options().Addr)
	connect := func(patience time.Duration) *redis.Client {
		client := redistest.Closing(t, redis.NewClient(&redis.Options{Addr: proxy.Addr(), MaxRetries: -1, DialerRetries: 1, ReadTimeout: patience}))
		return client
	}
	patient, impatient := connect(time.Minute), connect(200*time.Millisecond)
	want := int64(0)
	for _, test := range []struct {
		fault     Fault
		runs      bool
		wantError string
	}{
		{Fault{}, true, ""},
		{Fault{Delay: 50 * time.Millisecond}, true, ""},
		{Fault{Kind: LoseReply}, true, "EOF"},
		{Fault{Kind: DuplicateReply}, true, ""},
		{Fault{Kind: CutRequest, At: 7}, false, "EOF"},
		{Fault{Kind: CutReply, At: 1}, true, "EOF"},
		{Fault{Kind: NoReply}, true, "i/o timeout"},
		{Fault{Kind: Swallow}, false, "i/o timeout"},
		{Fault{Kind: Forge, Reply: "-LOADING\r\n"}, false, "LOADING"},
		{Fault{}, true, ""},
	} {
		proxy.Break(func(c Command) Fault {
			if c.Name != "incr" {
				return Fault{}
			}
			assert.Equal(t, []string{"incr", "k"}, c.Words)
			return test.fault
		})
		if test.runs {
			want++
		}
		client := patient
		if test.wantError == "i/o timeout" {
			client = impatient
		}
		began := time.Now()
		n, err := client.Incr(t.Context(), "k").Result()
		if test.wantError == "" {
			require.NoError(t, err)
			assert.Equal(t, want, n)
		} else {
			require.ErrorContains(t, err, test.wantError)
		}
		assert.GreaterOrEqual(t, time.Since(began), test.fault.Delay)
		redistest.Await(t, 10*time.Second, "the server has run what it got", func() bool {
			n, _ := direct.Get(t.Context(), "k").Int64()
			return n == want
		})
	}

	require.NoError(t, proxy.Refuse(true))
	require.ErrorContains(t, patient.Ping(t.Context()).Err(), "refused")
	require.NoError(t, proxy.Refuse(false))
	require.NoError(t, patient.Ping(t.Context()).Err())
	proxy.Silence(true)
	require.ErrorContains(t, impatient.Ping(t.Context()).Err(), "i/o timeout")
	proxy.Silence(false)
	require.NoError(t, patient.Ping(t.Context()).Err())
}
