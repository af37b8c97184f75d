package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"
)

// TestSimulatePage checks the page as a browser would read it.
func TestSimulatePage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.html")
	code, out, problem := run(t, "simulate", "--policy", oldPolicy, "--compare", newPolicy, "--suggest", "--html", path, handMade)
	assert.Equal(t, []any{0, ""}, []any{code, problem})
	assert.Contains(t, out, "\nThe page is in "+path+".\n")
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	golden(t, "report.html", string(data))
	safe(t, string(data))
	root, err := html.Parse(strings.NewReader(string(data)))
	require.NoError(t, err)

	ids, named, tables, plots, level := make(map[string]bool), []string{}, 0, 0, 0
	var texts strings.Builder
	for n := range root.Descendants() {
		if n.Type == html.TextNode {
			texts.WriteString(n.Data + "\n")
			continue
		}
		attr := make(map[string]string)
		for _, a := range n.Attr {
			attr[a.Key] = a.Val
			assert.False(t, strings.HasPrefix(a.Key, "on"), "%s has %s", n.Data, a.Key)
			assert.NotContains(t, []string{"href", "src", "srcset", "action", "style", "xlink:href"}, a.Key, "%s", n.Data)
		}
		if id := attr["id"]; id != "" {
			assert.False(t, ids[id], "two elements %s", id)
			ids[id] = true
		}
		if id := attr["aria-labelledby"]; id != "" {
			named = append(named, id)
		}
		switch n.Data {
		case "script", "link", "iframe", "object", "img", "form", "b":
			t.Errorf("<%s> in the page", n.Data)
		case "h1", "h2", "h3":
			next := int(n.Data[1] - '0')
			assert.LessOrEqual(t, next, level+1, "a heading is left out")
			level = next
		case "table":
			tables++
			assert.Equal(t, "region", attrOf(n.Parent, "role"))
			assert.NotEmpty(t, attrOf(n.Parent, "aria-label"))
			assert.Equal(t, "0", attrOf(n.Parent, "tabindex"))
		case "th":
			assert.Contains(t, []string{"col", "row", "rowgroup"}, attr["scope"])
		case "svg":
			plots++
			assert.True(t, attr["aria-hidden"] == "true" || attr["role"] == "img" && attr["aria-label"] != "", "a plot without words")
		}
	}
	for _, id := range named {
		assert.True(t, ids[id], "no element %s", id)
	}
	assert.Greater(t, tables, 10)
	assert.Greater(t, plots, 10)
	assert.Equal(t, "en", attrOf(slices.Collect(root.ChildNodes())[1], "lang"))
	for _, want := range []string{`GET /<script>alert(1)</script>`, `<img src=x onerror=alert(1)>\x1b[31m\u202e`, `GET /\xff\xfe`, `"<script>alert(2)</script>"`, `GET /\u202egnp.exe`} {
		assert.Contains(t, texts.String(), want)
	}
	for _, want := range []string{"prefers-color-scheme: dark", "width=device-width", "Content-Security-Policy"} {
		assert.Contains(t, string(data), want)
	}
}

func attrOf(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}

// TestSimulatePages checks that pages of unusual logs can be made.
func TestSimulatePages(t *testing.T) {
	line := `192.0.2.1 - - [01/May/2024:12:00:01 +0000] "GET / HTTP/1.1" 200 1` + "\n"
	far := strings.Replace(line, "2024", "2250", 1)
	for name, text := range map[string]string{"empty": "", "one line": line, "times far apart": line + line + far + far} {
		path := filepath.Join(t.TempDir(), "report.html")
		code, _, problem := run(t, "simulate", "--rules", "1/1m per ip", "--suggest", "--html", path, logFile(t, text))
		assert.Equal(t, []any{0, ""}, []any{code, problem}, name)
		data, err := os.ReadFile(path)
		require.NoError(t, err, name)
		assert.True(t, strings.HasSuffix(string(data), "</html>\n"), name)
	}
}
