package policyfile_test

import (
	"net"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/policyfile"
)

func TestExplain(t *testing.T) {
	f, err := policyfile.Read("testdata/valid/service.yaml")
	require.NoError(t, err)
	for _, test := range []struct{ method, path, ip, user, agent, want string }{
		{"POST", "/login", "203.0.113.7", "alice", "", `POST /login from 203.0.113.7, user alice
exempt: no entry matches
barred: no entry matches
policy login, by its route POST /login (testdata/valid/service.yaml:10:15)
  5/1m per ip (testdata/valid/service.yaml:11:13)
    key:     ip "203.0.113.7"
    limit:   5
    refused: waits up to 2s, and is then answered with 429
    outage:  local
  20/1h per user on-error refuse (testdata/valid/service.yaml:11:26)
    key:     user "alice"
    limit:   20
    refused: waits up to 2s, and is then answered with 429
    outage:  refuse
`},
		{"GET", "/items/7", "2001:db8::1", "", "", `GET /items/7 from 2001:db8::1, no user
exempt: no entry matches
barred: no entry matches
policy items, by its route GET /items/{id} (testdata/valid/service.yaml:14:15)
  one: 30/1m per ip and path id (testdata/valid/service.yaml:16:10)
    key:     ip "2001:db8::/64" and path id "7"
    limit:   30
    refused: answered with 503
    outage:  local
  1000/1m global token-bucket burst 50 (testdata/valid/service.yaml:17:9)
    key:     all requests of the policy
    limit:   1000
    refused: answered with 503
    outage:  local
`},
		{"POST", "/login", "10.1.2.3", "", "", `POST /login from 10.1.2.3, no user
exempt by 10.0.0.0/8, in list office (testdata/valid/service.yaml:4:13): no rule is charged, whatever the policy
`},
		{"POST", "/login", "203.0.113.7", "root", "", `POST /login from 203.0.113.7, user root
exempt by user root, in list office (testdata/valid/service.yaml:4:27): no rule is charged, whatever the policy
`},
		{"POST", "/login", "192.0.2.1", "", "a badbot/1", `POST /login from 192.0.2.1, no user
exempt: no entry matches
barred by agent BadBot, in list scanners (testdata/valid/service.yaml:5:31): answered with 403 on each route that has a policy
`},
		{"POST", "/items/7", "192.0.2.1", "", "", `POST /items/7 from 192.0.2.1, no user
exempt: no entry matches
barred: no entry matches
policy: none of the routes of the file matches
  GET of the same path matches GET /items/{id}
  policy exports has no routes: the program may attach it by its name (testdata/valid/service.yaml:19:3)
`},
	} {
		r := httptest.NewRequest(test.method, test.path, nil)
		r.RemoteAddr = net.JoinHostPort(test.ip, "80")
		r.Header.Set("User-Agent", test.agent)
		assert.Equal(t, test.want, f.Explain(r, test.user))
	}
}
