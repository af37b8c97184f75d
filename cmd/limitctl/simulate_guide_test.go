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
)

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

// TestGuide runs the commands of the guide, and compares their output. A line … in the
// guide stands for lines that it leaves out.
func TestGuide(t *testing.T) {
	page, err := os.ReadFile(guide)
	require.NoError(t, err)
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("access.log", []byte(yesterday()), 0o600))
	for i, block := range blocks(string(page), "yaml") {
		require.NoError(t, os.WriteFile([]string{"policy.yaml", "new.yaml"}[i], []byte(block), 0o600))
	}
	commands := 0
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
			pattern := regexp.QuoteMeta(strings.TrimRight(want, "\n"))
			pattern = strings.ReplaceAll("\n"+pattern+"\n", "\n…\n", "\n(?s:.*\n)?")
			assert.Regexp(t, `^`+strings.TrimPrefix(pattern, "\n"), out, command)
			commands++
		}
	}
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
