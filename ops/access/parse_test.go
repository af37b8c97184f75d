package access_test

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/ops/access"
)

func TestParseErrors(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.0/33":           "line 1, column 1: not a prefix: write one such as 10.0.0.0/8 or 2001:db8:1:2::/64\n\t10.0.0.0/33\n\t^",
		"\n  badbot":            "line 2, column 3: not an entry: write a prefix such as 10.0.0.0/8, an address, or user NAME or agent TEXT\n\t  badbot\n\t  ^",
		"10.0.0.1/8":            "line 1, column 1: the address has bits outside the prefix: write 10.0.0.0/8, or 10.0.0.1 alone\n\t10.0.0.1/8\n\t^",
		"fe80::1%eth0":          "line 1, column 1: an address has no zone here: write fe80::1\n\tfe80::1%eth0\n\t^",
		"0.0.0.0/0":             "line 1, column 1: matches every client: write the prefixes of those that you mean\n\t0.0.0.0/0\n\t^",
		"::/0":                  "line 1, column 1: matches every client: write the prefixes of those that you mean\n\t::/0\n\t^",
		"::ffff:0:0/96":         "line 1, column 1: matches every IPv4 address: write an IPv4 prefix, such as 10.0.0.0/8\n\t::ffff:0:0/96\n\t^",
		"64:ff9b::/96":          "line 1, column 1: matches every IPv4 address: write an IPv4 prefix, such as 10.0.0.0/8\n\t64:ff9b::/96\n\t^",
		"64:ff9b::/64":          "line 1, column 1: matches every IPv4 address: write an IPv4 prefix, such as 10.0.0.0/8\n\t64:ff9b::/64\n\t^",
		"::ffff:0:0/90":         "line 1, column 1: matches every IPv4 address: write an IPv4 prefix, such as 10.0.0.0/8\n\t::ffff:0:0/90\n\t^",
		"0.0.0.0/1":             "line 1, column 1: matches too many clients: write the prefixes of those that you mean, each of /8 or longer\n\t0.0.0.0/1\n\t^",
		"128.0.0.0/1":           "line 1, column 1: matches too many clients: write the prefixes of those that you mean, each of /8 or longer\n\t128.0.0.0/1\n\t^",
		"10.0.0.0/7":            "line 1, column 1: matches too many clients: write the prefixes of those that you mean, each of /8 or longer\n\t10.0.0.0/7\n\t^",
		"::ffff:128.0.0.0/97":   "line 1, column 1: matches too many clients: write the prefixes of those that you mean, each of /8 or longer\n\t::ffff:128.0.0.0/97\n\t^",
		"2000::/3":              "line 1, column 1: matches too many clients: write the prefixes of those that you mean, each of /16 or longer\n\t2000::/3\n\t^",
		"2a00::/15":             "line 1, column 1: matches too many clients: write the prefixes of those that you mean, each of /16 or longer\n\t2a00::/15\n\t^",
		"fc00::/6":              "line 1, column 1: matches too many clients: write the prefixes of those that you mean, each of /16 or longer\n\tfc00::/6\n\t^",
		"10.0.0.0/8 10.0.0.0/9": "line 1, column 12: more than one entry: write each on a line of its own, a text with blanks in quotes, and # before a comment\n\t10.0.0.0/8 10.0.0.0/9\n\t           ^",
		"user":                  "line 1, column 5: a user is missing: write one, such as user alice\n\tuser\n\t    ^",
		"user é b":              "line 1, column 8: more than one entry: write each on a line of its own, a text with blanks in quotes, and # before a comment\n\tuser é b\n\t       ^",
		`agent "no`:             "line 1, column 7: the quotes are not closed, or an escape is wrong: write \"text\" on one line, with \\\" and \\\\ in it\n\tagent \"no\n\t      ^",
		`agent "a"`:             "line 1, column 7: an agent of less than 3 characters is in the User-Agent of too many clients: write more of it, such as agent \"BadBot\"\n\tagent \"a\"\n\t      ^",
		"user a\x00":            "line 1, column 7: byte 0x00 is not text: write UTF-8 without control characters",
		"user \xff":             "line 1, column 6: byte 0xff is not text: write UTF-8 without control characters",
	} {
		_, err := access.Parse(strings.NewReader(text), nil)
		assert.EqualError(t, err, "access: "+want, text)
	}
	_, err := access.Parse(io.MultiReader(strings.NewReader("10.0.0.0/8\n"), failing{}), nil)
	assert.EqualError(t, err, "access: line 2 cannot be read: the disk is on fire")
	_, err = access.Parse(strings.NewReader(strings.Repeat("no\n", 11)), nil)
	assert.Equal(t, 10, strings.Count(fmt.Sprint(err), "not an entry"))
	assert.ErrorContains(t, err, "line 10, column 1")
	assert.ErrorContains(t, err, "the rest was not read")
}

// TestWidestPrefixes reads the widest prefixes that a list may have.
func TestWidestPrefixes(t *testing.T) {
	for _, text := range []string{"10.0.0.0/8", "::ffff:10.0.0.0/104", "2001::/16", "fc00::/7", "fd00::/8", "fe80::/10"} {
		_, err := access.Parse(strings.NewReader(text), nil)
		assert.NoError(t, err, text)
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("the disk is on fire") }

// TestParseTooMuch reads texts of 100 MB, and checks that what is not a list is not
// kept in memory.
func TestParseTooMuch(t *testing.T) {
	agents := ""
	for i := range 1001 {
		agents += fmt.Sprintf("agent bot%d\n", i)
	}
	const size = 100 << 20
	for name, test := range map[string]struct {
		text io.Reader
		most uint64 // bytes
		want string
	}{
		"NULs":      {&endless{text: "\x00"}, 1 << 20, "line 1, column 4097: the line is longer than 4096 bytes: write one entry a line"},
		"a line":    {strings.NewReader(strings.Repeat("x", 10<<20)), 1 << 20, "line 1, column 4097: the line is longer than 4096 bytes"},
		"comments":  {&endless{text: "# a comment\n"}, 100 << 20, "the list is longer than 8 MiB: shorten it, or join its prefixes to wider ones"},
		"entries":   {&endless{text: "10.0.0.1\n"}, 100 << 20, "the list is longer than 8 MiB"},
		"agents":    {strings.NewReader(agents), 1 << 20, "line 1001, column 1: more than 1000 agents: write parts that several have in common\n\tagent\n\t^"},
		"long text": {strings.NewReader(strings.Repeat("x", 4096)), 1 << 20, "not an entry"},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := access.Parse(io.LimitReader(test.text, size), nil)
		runtime.ReadMemStats(&after)
		assert.ErrorContains(t, err, "access: ", name)
		assert.ErrorContains(t, err, test.want, name)
		assert.Less(t, len(err.Error()), 1000, name)
		assert.Less(t, after.TotalAlloc-before.TotalAlloc, test.most, name)
	}
}

// endless repeats a text.
type endless struct {
	text string
	at   int
}

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = e.text[e.at%len(e.text)]
		e.at++
	}
	return len(p), nil
}

// FuzzParse checks that every text is a list or a short error.
func FuzzParse(f *testing.F) {
	f.Add(everything)
	f.Add("user \"\\x00\"\nagent \"a\\\"b\"")
	f.Add("::ffff:1.2.3.4/128\n1.2.3.4/8\nagent \xff")
	f.Fuzz(func(t *testing.T, text string) {
		l, err := access.Parse(strings.NewReader(text), nil)
		if err != nil {
			require.Less(t, len(err.Error()), 10_000)
			require.NotContains(t, err.Error(), "\x00")
			return
		}
		l.Bar(client(from("10.0.0.1:80", "X-User", "alice", "User-Agent", "BadBot")))
	})
}
