package policyfile_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/ops/policyfile"
	"github.com/routelimit/limit/rules"
)

// texts returns the policies of a file in the text grammar.
func texts(f *policyfile.File) (list []string) {
	for _, policy := range f.Policies() {
		list = append(list, policy.Rules.String())
	}
	return list
}

// TestFormats checks that one content means the same in YAML, JSON and TOML.
func TestFormats(t *testing.T) {
	want := []string{
		"5/1m per ip refuse wait 2s; 20/1h per user on-error refuse refuse wait 2s",
		"one: 30/1m per ip and path id refuse 503; 1000/1m global token-bucket burst 50 refuse 503",
		"20/1h per user; 2/1m per user concurrency",
	}
	for _, path := range []string{"testdata/valid/service.yaml", "testdata/valid/service.json"} {
		f := must.Get(policyfile.Read(path))(t)
		assert.ElementsMatch(t, want, texts(f), path)
	}
	f := must.Get(policyfile.Read("testdata/valid/windows.yaml"))(t)
	assert.Equal(t, []string{"5/1m per ip"}, texts(f))
}

// FuzzParse checks that no text makes the decoder panic, that errors have a place
// within the text, that a valid file means the same when it is read again, that no text
// takes seconds, and that no JSON means something else when its end is missing.
func FuzzParse(f *testing.F) {
	for _, file := range append(brokenFiles(f), "testdata/valid/service.yaml", "testdata/valid/service.json", "testdata/valid/nested.yaml", "testdata/valid/plans.yaml") {
		data := must.Get(os.ReadFile(file))(f)
		f.Add(string(data))
	}
	f.Add("version: 1\npolicies: # \u2028\u2028\u2028\n  \"a\": {rules: \"5/1x\", routes: [\"\u2028\"]}\nx: 1\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, name := range []string{"a.yaml", "a.json"} {
			begin := time.Now()
			file, err := policyfile.Parse(name, []byte(text))
			require.Less(t, time.Since(begin), 2*time.Second, "%s of %d bytes", name, len(text))
			if err == nil {
				again := must.Get(policyfile.Parse(name, []byte(text)))(t)
				require.Equal(t, texts(file), texts(again))
				for cut := range min(len(text), 8) {
					if half, err := policyfile.Parse("a.json", []byte(text[:len(text)-cut])); err == nil {
						require.Equal(t, texts(file), texts(half), "half written")
					}
				}
				for _, policy := range file.Policies() {
					must.Get(policy.Rules.MarshalText())(t)
				}
				continue
			}
			for _, err := range list(err) {
				var wrong *policyfile.Error
				if !assert.ErrorAs(t, err, &wrong) {
					continue
				}
				lines := strings.Split(text, "\n")
				require.True(t, 1 <= wrong.Line && wrong.Line <= len(lines), "%d of %d: %v", wrong.Line, len(lines), err)
				require.True(t, 1 <= wrong.Column && wrong.Column <= len(lines[wrong.Line-1])+1, "%v", err)
			}
		}
	})
}

// TestFunctionsTwice opens a file with two functions of one name, of which a rule would
// have the first.
func TestFunctionsTwice(t *testing.T) {
	tenant := limit.By("tenant", func(*http.Request) string { return "" })
	path := filepath.Join(t.TempDir(), "p.yaml")
	write(t, path, "version: 1\npolicies: none\n")
	_, err := policyfile.Open(path, &policyfile.Options{Functions: rules.Functions{Keys: []limit.KeyResolver{tenant, tenant}}})
	assert.ErrorContains(t, err, `Functions.Keys has two functions "tenant"`)
}

func TestContent(t *testing.T) {
	f := must.Get(policyfile.Parse("p.yaml", []byte("version: 1\nlists: {a: [b, 10.0.0.1], b: [a, user eve]}\nbarred: [a]\npolicies:\n  b: {rules: 1/1s global}\n  a: {routes: [/x, GET /y], rules: 5/1m per ip}\n")))(t)
	policies := f.Policies()
	require.Len(t, policies, 2)
	assert.Equal(t, []any{"b", []string(nil), "a", []string{"/x", "GET /y"}}, []any{policies[0].Name, policies[0].Routes, policies[1].Name, policies[1].Routes})
	assert.Equal(t, "5/1m per ip", policies[1].Rules.String())

	exempt, barred := f.Lists()
	assert.Nil(t, exempt)
	limiter := limit.New(nil, &limit.Options{Caller: limit.Caller[*http.Request]{User: func(r *http.Request) string { return r.Host }}})
	assert.True(t, barred.Matches(limit.Client{Request: &http.Request{Host: "eve"}, Limiter: limiter}))
	assert.False(t, barred.Matches(limit.Client{Request: &http.Request{Host: "al"}, Limiter: limiter}))
}
