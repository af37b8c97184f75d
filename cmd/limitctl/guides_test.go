package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/must"
)

const operating = "../../docs/operating.md"

// busy makes the clients of the guide.
func (s *server) busy(t *testing.T) {
	for range 6 {
		s.try(t, "203.0.113.9", "alice")
	}
	s.try(t, "198.51.100.7", "carol")
	for _, c := range []struct {
		user, plan string
		cost       int64
	}{{"alice", "", 950}, {"bob", "pro", 4900}, {"carol", "", 3}} {
		must.Get(s.api.Take(t.Context(), limit.Request{Cost: c.cost, Plan: c.plan, Keys: map[string]string{"user": c.user, "ip": "192.0.2.1"}}))(t)
	}
}

var shownTime = regexp.MustCompile(`20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ`)

// comparable leaves out times, and the width of columns.
func comparable(text string) string {
	var lines []string
	for line := range strings.Lines(shownTime.ReplaceAllString(text, "TIME")) {
		words := strings.Fields(line)
		for i, w := range words {
			if d, err := time.ParseDuration(strings.TrimSuffix(w, ":")); err == nil && d.String() != "0s" || w == "0.0s:" {
				words[i] = "SPAN"
			}
		}
		lines = append(lines, strings.Join(words, " "))
	}
	return strings.Join(lines, "\n")
}

// TestOperatingGuide runs the commands of docs/operating.md, and compares their output.
func TestOperatingGuide(t *testing.T) {
	page := must.Get(os.ReadFile(operating))(t)
	s := newServer(t)
	s.busy(t)
	t.Setenv("LIMITCTL_REDIS", s.flags[1])
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("policy.yaml", []byte(blocks(string(page), "yaml")[0]), 0o600))
	commands := runs(t, page, func(command, want, out string) {
		assert.Equal(t, comparable(strings.TrimRight(want, "\n")), comparable(strings.TrimRight(out, "\n")), "%s\n%s", command, out)
	})
	assert.GreaterOrEqual(t, commands, 10)
}

// TestOperatingFields checks that docs/limitctl-json.md has each field of JSON.
func TestOperatingFields(t *testing.T) {
	page := must.Get(os.ReadFile("../../docs/limitctl-json.md"))(t)
	fields := 0
	for _, file := range []string{"internal/live/state.go", "internal/live/top.go", "inspect.go", "change.go", "ban.go", "override.go", "top.go", "reset.go"} {
		code := must.Get(os.ReadFile(file))(t)
		for _, found := range regexp.MustCompile("`json:\"([a-z_]+)").FindAllStringSubmatch(string(code), -1) {
			assert.Contains(t, string(page), "`"+found[1]+"`", file)
			fields++
		}
	}
	assert.Greater(t, fields, 40)
}

// TestOperatingRights runs commands as users without rights, and with those that their errors
// name, which are those of the guides.
func TestOperatingRights(t *testing.T) {
	s := newServer(t)
	s.busy(t)
	_, _, problem := s.run(t, "override", "--policy", "api", "--rule", "per-user-1h", "--key", "alice", "--limit", "5000", "--for", "0", "--by", "ann", "--yes")
	require.Empty(t, problem)
	url := strings.Replace(s.flags[1], "redis://", "redis://look:pw@", 1)
	require.NoError(t, s.client.Do(t.Context(), "ACL", "SETUSER", "look", "reset", "on", ">pw", "+hello").Err())
	_, problem = exits(t, 1, "ban", "--list", "--redis", url+"/2")
	assert.Contains(t, problem, " +select", "which other databases need")
	for _, args := range [][]string{
		{"top", "--at", "10"}, {"inspect", "--key", "alice"}, {"reset", "--policy", "login", "--key", "alice", "--yes"}, {"history"}, {"push", s.policy, "--by", "ann", "--yes"},
		{"ban", "user", "mallory", "--for", "1h", "--by", "ann", "--yes"}, {"override", "--list"},
	} {
		require.NoError(t, s.client.Do(t.Context(), "ACL", "SETUSER", "look", "reset", "on", ">pw", "+hello").Err())
		args = append(args, "--redis", url)
		if args[0] == "top" || args[0] == "inspect" || args[0] == "reset" {
			args = append(args, "--file", s.policy)
		}
		_, problem := exits(t, 1, args...)
		before, grant, ok := strings.Cut(problem, ": as an administrator of Redis, run ACL SETUSER look ")
		require.True(t, ok, problem)
		assert.Regexp(t, "^NOPERM this user has no permissions to run the '[a-z]+' command$", strings.ReplaceAll(before, "User look has", "this user has"))
		words := []any{"ACL", "SETUSER", "look"}
		for _, w := range strings.Fields(grant) {
			words = append(words, w)
		}
		require.NoError(t, s.client.Do(t.Context(), words...).Err())
		code, _, problem := run(t, args...)
		assert.Equal(t, []any{0, ""}, []any{code, problem}, args)
	}
	for path, rights := range map[string]string{operating: rightsOf("top", "shop", ""), "../../docs/watching.md": rightsOf("watch", "shop", ""), "../../docs/redis.md": rightsOf("ban", "shop", "")} {
		page := must.Get(os.ReadFile(path))(t)
		assert.Contains(t, strings.Join(strings.Fields(strings.ReplaceAll(string(page), "\\\n", "")), " "), rights, path)
	}
}

const guide = "../../docs/choosing-limits.md"

// yesterday returns the log of a day: 400 people, one client that guesses passwords, and
// a crawler.
func yesterday() string {
	type line struct {
		at   float64
		text string
	}
	var lines []line
	add := func(at float64, ip, request string, status int, agent string) {
		when := time.Date(2024, 5, 1, 0, 0, 0, int(1e9*at), time.UTC)
		lines = append(lines, line{at, fmt.Sprintf("%s - - [%s] %q %d 512 \"-\" %q\n", ip, when.Format("02/Jan/2006:15:04:05 -0700"), request+" HTTP/1.1", status, agent)})
	}
	r := rand.New(rand.NewPCG(4, 2))
	for person := range 400 {
		ip := fmt.Sprintf("198.51.%d.%d", 100+person/200, person%200+1)
		at := 3600 * (8 + 12*r.Float64())
		add(at, ip, "POST /login", 200, "Mozilla/5.0")
		if person%10 == 0 {
			add(at+4, ip, "POST /login", 401, "Mozilla/5.0")
			add(at+9, ip, "POST /login", 200, "Mozilla/5.0")
		}
		for range 5 + r.IntN(30) {
			at += 5 + 40*r.Float64()
			add(at, ip, fmt.Sprintf("GET /items/%d", r.IntN(500)), 200, "Mozilla/5.0")
		}
	}
	for i := range 900 {
		add(3*3600+0.7*float64(i), "203.0.113.9", "POST /login", 401, "python-requests/2.31")
	}
	for i := range 2500 {
		add(11*3600+0.5*float64(i), "192.0.2.66", fmt.Sprintf("GET /items/%d", i), 200, "ExampleBot/2.1")
	}
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(a.at, b.at) })
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(l.text)
	}
	return b.String()
}

var word = regexp.MustCompile(`"[^"]*"|'[^']*'|\S+`)

// runs runs the commands of a page, has each compared with the output that the page shows, and
// counts them.
func runs(t *testing.T, page []byte, compare func(command, want, out string)) (commands int) {
	for _, block := range blocks(string(page), "console") {
		for _, part := range strings.Split("\n"+block, "\n$ ")[1:] {
			command, want, _ := strings.Cut(part, "\n")
			words := word.FindAllString(command, -1)
			if words[0] != "limitctl" {
				continue
			}
			for i := range words {
				words[i] = strings.Trim(words[i], `"'`)
			}
			code, out, problem := run(t, words[1:]...)
			assert.Equal(t, []any{0, ""}, []any{code, problem}, command)
			compare(command, want, out)
			commands++
		}
	}
	return commands
}

// TestGuide runs the commands of the guide, and compares their output. A line … in the
// guide stands for lines that it leaves out.
func TestGuide(t *testing.T) {
	page := must.Get(os.ReadFile(guide))(t)
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("access.log", []byte(yesterday()), 0o600))
	for i, block := range blocks(string(page), "yaml") {
		require.NoError(t, os.WriteFile([]string{"policy.yaml", "new.yaml"}[i], []byte(block), 0o600))
	}
	commands := runs(t, page, func(command, want, out string) {
		pattern := regexp.QuoteMeta(strings.TrimRight(want, "\n"))
		pattern = strings.ReplaceAll("\n"+pattern+"\n", "\n…\n", "\n(?s:.*\n)?")
		assert.Regexp(t, `^`+strings.TrimPrefix(pattern, "\n"), out, command)
	})
	assert.GreaterOrEqual(t, commands, 5)
}

// blocks returns the blocks of a language in a page.
func blocks(page, language string) (texts []string) {
	for _, found := range regexp.MustCompile("(?s)\n```"+language+"\n(.*?)```").FindAllStringSubmatch(page, -1) {
		texts = append(texts, found[1])
	}
	return texts
}

// TestYesterday writes the log of the guide to the path in YESTERDAY, so that readers can try it.
func TestYesterday(t *testing.T) {
	if path := os.Getenv("YESTERDAY"); path != "" {
		require.NoError(t, os.WriteFile(path, []byte(yesterday()), 0o600))
	}
	assert.Equal(t, yesterday(), yesterday())
}
