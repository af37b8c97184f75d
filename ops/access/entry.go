package access

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/clientip"
	"github.com/routelimit/limit/internal/excerpt"
)

// An Entry is one of a [List]. Make it with [ParseEntry].
type Entry struct {
	kind   kind
	prefix netip.Prefix
	text   string    // the user, or the part of a User-Agent in lower case
	until  time.Time // the zero Time is for good
}

type kind uint8

const (
	byPrefix kind = iota
	byUser
	byAgent
)

var errNoEntry = errors.New("access: no entry: write a prefix such as 10.0.0.0/8, an address, user NAME or agent TEXT")

// ParseEntry reads an entry in the form of a line of a list. The error is a [*ParseError],
// or says that there is only a comment.
func ParseEntry(line string) (e Entry, err error) {
	words, err := split(line)
	if err != nil {
		return e, err
	}
	if len(words) == 0 {
		return e, errNoEntry
	}
	arg := word{"", len(line), len(line)} // of user and agent
	if len(words) > 1 {
		arg = words[1]
	}
	last := 1
	switch first := words[0]; line[first.at:first.end] {
	case "user":
		e = Entry{kind: byUser, text: arg.text}
		if e.text == "" {
			return Entry{}, errorAt(line, arg, "a user is missing: write one, such as user alice")
		}
	case "agent":
		e = Entry{kind: byAgent, text: string(lower(make([]byte, 0, maxLine), arg.text))}
		if len(e.text) < minAgent {
			return Entry{}, errorAt(line, arg, fmt.Sprintf("an agent of less than %d characters is in the User-Agent of too many clients: "+
				"write more of it, such as agent \"BadBot\"", minAgent))
		}
	default:
		prefix, problem := parsePrefix(first.text)
		if problem != "" {
			return Entry{}, errorAt(line, first, problem)
		}
		e, last = Entry{kind: byPrefix, prefix: prefix}, 0
	}
	if len(words) > last+1 {
		return Entry{}, errorAt(line, words[last+1], "more than one entry: write each on a line of its own, a text with blanks in quotes, and # before a comment")
	}
	return e, nil
}

// String returns the entry in the form of a line of a list, which all its spellings share.
func (e Entry) String() string {
	switch e.kind {
	case byUser:
		return "user " + quoted(e.text)
	case byAgent:
		return "agent " + quoted(e.text)
	}
	if e.prefix.IsSingleIP() {
		return e.prefix.Addr().String()
	}
	return e.prefix.String()
}

func quoted(text string) string {
	if q := strconv.Quote(text); q != `"`+text+`"` || strings.ContainsAny(text, blanks+"#") {
		return q
	}
	return text
}

// IsUser reports whether the entry is of a user, which only a limiter that knows users can match.
func (e Entry) IsUser() bool { return e.kind == byUser }

// Proxy returns the first trusted proxy that is among the clients of the entry, or the
// zero Prefix. To exempt it exempts every client whose address it does not send.
func (e Entry) Proxy(proxies limit.Proxies) netip.Prefix {
	for _, proxy := range proxies.Trusted {
		if e.prefix.Overlaps(proxy) {
			return proxy
		}
	}
	return netip.Prefix{}
}

// private are the IPv6 prefixes that every site may use as it likes.
var private = [...]netip.Prefix{netip.MustParsePrefix("fc00::/7"), netip.MustParsePrefix("fe80::/10")}

// parsePrefix reads a prefix or an address, or returns what is wrong with it.
func parsePrefix(text string) (p netip.Prefix, problem string) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		ip, err := netip.ParseAddr(text)
		switch {
		case err != nil && strings.ContainsAny(text, ".:") && strings.Contains(text, "/"):
			return p, "not a prefix: write one such as 10.0.0.0/8 or 2001:db8:1:2::/64"
		case err != nil:
			return p, "not an entry: write a prefix such as 10.0.0.0/8, an address, or user NAME or agent TEXT"
		case ip.Zone() != "":
			return p, "an address has no zone here: write " + ip.WithZone("").String()
		}
		return clientip.Prefix(netip.PrefixFrom(ip, ip.BitLen())), ""
	}
	given := p
	p = clientip.Prefix(p)
	switch masked := p.Masked(); {
	case p.Bits() == 0 && p != given:
		return p, "matches every IPv4 address: write an IPv4 prefix, such as 10.0.0.0/8"
	case p.Bits() == 0:
		return p, "matches every client: write the prefixes of those that you mean"
	case tooWide(p):
		least := minBits6
		if p.Addr().Is4() {
			least = minBits4
		}
		return p, fmt.Sprintf("matches too many clients: write the prefixes of those that you mean, each of /%d or longer", least)
	case masked != p:
		return p, fmt.Sprintf("the address has bits outside the prefix: write %v, or %v alone", masked, p.Addr())
	}
	return p, ""
}

// tooWide reports whether p has more clients than anyone bars or exempts on purpose.
func tooWide(p netip.Prefix) bool {
	if p.Addr().Is4() {
		return p.Bits() < minBits4
	}
	for _, all := range private {
		if all.Bits() <= p.Bits() && all.Contains(p.Addr()) {
			return false
		}
	}
	return p.Bits() < minBits6
}

// A word is a part of a line between blanks, or in quotes.
type word struct {
	text    string
	at, end int // in the line
}

const blanks = " \t"

// split returns the words of a line before a comment.
func split(line string) (words []word, _ error) {
	for at, c := range line {
		if c != '\t' && unicode.IsControl(c) || c == utf8.RuneError && !strings.HasPrefix(line[at:], "\uFFFD") {
			return nil, &ParseError{Column: column(line, at),
				Problem: fmt.Sprintf("byte %#02x is not text: write UTF-8 without control characters", line[at])}
		}
	}
	for at := 0; ; {
		at = len(line) - len(strings.TrimLeft(line[at:], blanks))
		if at == len(line) || line[at] == '#' {
			return words, nil
		}
		w := word{at: at}
		if line[at] == '"' {
			quoted, err := strconv.QuotedPrefix(line[at:])
			if err != nil {
				return nil, errorAt(line, word{line[at:], at, len(line)}, "the quotes are not closed, or an escape is wrong: write \"text\" on one line, with \\\" and \\\\ in it")
			}
			w.text, _ = strconv.Unquote(quoted)
			w.end = at + len(quoted)
		} else {
			w.end = at + len(line[at:])
			if i := strings.IndexAny(line[at:], blanks); i >= 0 {
				w.end = at + i
			}
			w.text = line[at:w.end]
		}
		words = append(words, w)
		at = w.end
	}
}

// A ParseError says where a list, or an entry of [Bans.Ban], is wrong.
type ParseError struct {
	Line    int    // from 1; 0 for an entry of Ban
	Column  int    // in characters, from 1
	Problem string // what is wrong, and what to write instead

	mark *excerpt.Mark // in the line up to the end of the wrong word, or nil
}

// Error returns the place and the problem, and below them the line with a caret.
func (e *ParseError) Error() string {
	where := fmt.Sprintf("column %d", e.Column)
	if e.Line > 0 {
		where = fmt.Sprintf("line %d, %s", e.Line, where)
	}
	text := fmt.Sprintf("access: %s: %s", where, e.Problem)
	if e.mark != nil {
		text += e.mark.String()
	}
	return text
}

// errorAt returns an error about a word of a line.
func errorAt(line string, w word, problem string) error {
	mark := excerpt.In(line[:w.at], excerpt.Start(line[w.at:w.end]))
	return &ParseError{Column: column(line, w.at), Problem: problem, mark: &mark}
}

func column(line string, at int) int { return utf8.RuneCountInString(line[:at]) + 1 }
