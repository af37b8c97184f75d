package replay

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/cmd/limitctl/replay/accesslog"
	"github.com/routelimit/limit/internal/must"
)

// FuzzRun checks that no log makes a replay panic, and that every line is counted once.
func FuzzRun(f *testing.F) {
	for _, text := range []string{
		"192.0.2.1 - al [01/May/2024:12:00:01 +0000] \"GET /u/7?q=x HTTP/1.1\" 200 12 \"-\" \"curl\"\n192.0.2.1 - - [01/May/2024:12:00:00 +0000] \"GET /u/%7 HTTP/1.1\" 200 12 \"-\" \"-\"",
		"{\"time\":1,\"client_ip\":\"::1\",\"key\":\"k\",\"sid\":\"a b\",\"method\":\"CONNECT\",\"uri\":\"//x/../y\",\"host\":\"h:1\"}\n{\"time\":\"9999-01-01T00:00:00Z\",\"method\":\"GET\",\"uri\":\"*\"}",
		"{\"time\":5,\"client_ip\":\"fe80::1%eth0\",\"key\":\"\\u0000\\n\",\"sid\":\";=\\\"\",\"method\":\"GET\",\"uri\":\"http://a@b:c/d?;q=%zz\",\"user\":\"\\ud800\"}",
		"\x1f\x8b\x08\x00", "\x28\xb5\x2f\xfd", "",
	} {
		f.Add([]byte(text), true)
		f.Add([]byte(text), false)
	}
	format := must.Get(accesslog.ParseFormat("json header:x-key=key cookie:sid=sid"))(f)
	policies := []Policy{
		{Routes: []string{"GET /u/{id}", "example.com/"}, Rules: limit.MustParse("2/1s per ip or path id; 3/1m per query q and user")},
		{Rules: limit.Named("all", limit.MustParse("2/1s per header X-Key; 1/1s per cookie sid queue burst 3; 2/1m per ip ban 1h; 3/1m per ip distinct query q").Rules()...)},
	}
	f.Fuzz(func(t *testing.T, text []byte, named bool) {
		o := &accesslog.Options{}
		if named {
			o.Format = format
		}
		log := accesslog.NewStream(bytes.NewReader(text), o)
		defer log.Close()
		r, err := Run(t.Context(), log, &Options{Policies: policies, Compare: &Options{Policies: policies[:1]}, Reorder: 1, MaxKeys: 256, maxClients: 2, maxSeries: 2})
		if err != nil {
			return
		}
		assert.Equal(t, r.Lines, r.BadLines+r.NotHTTP+r.BadTimes+r.Requests+r.Undecided)
		c := r.Comparison
		assert.Equal(t, r.Requests, c.BothAdmit+c.BothRefuse+c.OnlyOld+c.OnlyNew)
		assert.Equal(t, r.Refused, c.BothRefuse+c.OnlyOld)
		_, err = json.Marshal(r)
		assert.NoError(t, err)
	})
}
