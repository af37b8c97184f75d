package policyfile_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/race"
	"github.com/routelimit/limit/ops/policyfile"
)

// brokenFiles returns the paths of the files in testdata/broken. Each is what its name says, and
// file.want has its errors.
func brokenFiles(t testing.TB) (files []string) {
	t.Helper()
	all := must.Get(filepath.Glob("testdata/broken/*"))(t)
	for _, file := range all {
		if filepath.Ext(file) != ".want" {
			files = append(files, file)
		}
	}
	return files
}

// TestBroken compares the errors of broken files with those that are expected.
// LIMIT_UPDATE=1 writes them, to be read before they are committed.
func TestBroken(t *testing.T) {
	files := brokenFiles(t)
	assert.GreaterOrEqual(t, len(files), 50)
	for _, file := range files {
		data := must.Get(os.ReadFile(file))(t)
		f, err := policyfile.Parse(filepath.Base(file), data)
		require.Error(t, err, file)
		assert.Nil(t, f)
		for _, err := range list(err) {
			var wrong *policyfile.Error
			require.ErrorAs(t, err, &wrong)
			assert.True(t, strings.HasPrefix(err.Error(), fmt.Sprintf("%s:%d:%d: ", filepath.Base(file), wrong.Line, wrong.Column)), err)
			caret := strings.Split(err.Error(), "\n\t")
			require.Len(t, caret, 3, "%s: the message, the line and the caret", file)
			assert.True(t, strings.HasSuffix(caret[2], "^"))
		}
		if os.Getenv("LIMIT_UPDATE") != "" {
			require.NoError(t, os.WriteFile(file+".want", []byte(err.Error()+"\n"), 0o600))
			continue
		}
		want := must.Get(os.ReadFile(file + ".want"))(t)
		assert.Equal(t, string(want), err.Error()+"\n", file)
	}
}

// list returns the errors that err joins.
func list(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}

// TestAllAtOnce checks that a file with many mistakes has all of them in one error, in
// the order of their lines, and at most a hundred.
func TestAllAtOnce(t *testing.T) {
	var b strings.Builder
	b.WriteString("version: 1\npolicies:\n")
	for i := range 150 {
		fmt.Fprintf(&b, "  p%d: {rules: 5/1x per ip}\n", i)
	}
	_, err := policyfile.Parse("a.yaml", []byte(b.String()))
	errs := list(err)
	require.Len(t, errs, 101)
	for i, err := range errs[:100] {
		var wrong *policyfile.Error
		require.True(t, errors.As(err, &wrong))
		assert.Equal(t, []int{i + 3, slices.Index([]byte(strings.Split(b.String(), "\n")[i+2]), 'x') + 1}, []int{wrong.Line, wrong.Column})
	}
	assert.EqualError(t, errs[100], "a.yaml: 50 more mistakes")
}

// TestLarge checks files that are too large, and what a file of the allowed size costs.
func TestLarge(t *testing.T) {
	race.Skip(t)
	_, err := policyfile.Parse("a.yaml", make([]byte, 100<<20))
	assert.ErrorContains(t, err, "a.yaml:1:1: the file has more than 1 MiB")

	path := filepath.Join(t.TempDir(), "a.yaml")
	f := must.Get(os.Create(path))(t)
	require.NoError(t, f.Truncate(100<<20)) // zeros, and none on the disk
	require.NoError(t, f.Close())
	_, err = policyfile.Read(path)
	assert.ErrorContains(t, err, path+":1:1: the file has more than 1 MiB")
	for name, text := range map[string]string{
		"brackets": strings.Repeat("[", 1<<20), "sequences": strings.Repeat("- ", 1<<19), "anchors": strings.Repeat("&a ", 1<<20/3),
		"keys": strings.Repeat("a: b\n", 1<<20/5), "zeros": strings.Repeat("\x00", 1<<20), "aliases": "a: &a [x]\nb: [" + strings.Repeat("*a,", 300_000) + "]\n",
	} {
		for _, format := range []string{"a.yaml", "a.json"} {
			_, err := policyfile.Parse(format, []byte(text))
			assert.Error(t, err, name+format)
			assert.Less(t, len(err.Error()), 200_000)
		}
	}

	// Files of 1 MiB that would take minutes if a part of them took the time of all.
	const head = "version: 1\npolicies:\n  a: {rules: 5/1m per ip}\n"
	many := func(n int, line func(i int) string) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(line(i))
		}
		return b.String()
	}
	for name, text := range map[string]string{
		"rules.yaml":   "version: 1\npolicies:\n  a: {rules: \"" + strings.Repeat(";", 1_000_000) + "\"}\n",
		"lines.yaml":   "version: 1\npolicies:\n  a:\n    rules: |\n" + strings.Repeat("      x\n", 130_000),
		"blank.json":   `{"version": 1, "policies": {"a": {"rules": "` + strings.Repeat(`\n`, 500_000) + `"}}}`,
		"chain.yaml":   head + "lists:\n" + many(40_000, func(i int) string { return fmt.Sprintf("  l%d: [l%d]\n", i, i+1) }),
		"lists.json":   `{"version": 1, "policies": "none", "lists": {"a": ["a"` + strings.Repeat(`,"b"`, 200_000) + `]}}`,
		"routes.yaml":  "version: 1\npolicies:\n  a:\n    rules: 5/1m per ip\n    routes:\n" + many(40_000, func(i int) string { return fmt.Sprintf("    - /{a}/%d/{b}\n", i) }),
		"pattern.yaml": "version: 1\npolicies:\n  a:\n    rules: 5/1m per ip\n    routes: [\"/" + strings.Repeat("{", 1_000_000) + "\"]\n",
		"entries.yaml": head + "barred: [" + strings.Repeat("10.0.0.0/33, ", 75_000) + "]\n",
	} {
		begin := time.Now()
		_, err := policyfile.Parse(name, []byte(text))
		require.Error(t, err, name)
		assert.Less(t, len(err.Error()), 200_000, name)
		t.Logf("%s: %d bytes, %v", name, len(text), time.Since(begin))
	}
}

// TestUnreadable checks paths that cannot be read.
func TestUnreadable(t *testing.T) {
	dir := t.TempDir()
	_, err := policyfile.Read(dir)
	assert.EqualError(t, err, "policyfile: "+dir+" is not a regular file")
	_, err = policyfile.Read(filepath.Join(dir, "none.yaml"))
	assert.ErrorIs(t, err, os.ErrNotExist)
	if os.Getuid() != 0 {
		path := filepath.Join(dir, "a.yaml")
		require.NoError(t, os.WriteFile(path, nil, 0))
		_, err = policyfile.Read(path)
		assert.ErrorIs(t, err, os.ErrPermission)
	}
}
