package access

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds on a list. The length of a text bounds the number of its prefixes and users.
const (
	maxText    = 8 << 20
	maxLine    = 4096
	maxAgents  = 1000 // each is searched for in each request
	maxSecrets = 100
	maxSecret  = 256
	minAgent   = 3
	maxErrors  = 10

	// No organization has more addresses than a prefix of so many bits.
	minBits4 = 8
	minBits6 = 16
)

// private are the IPv6 prefixes that every site may use as it likes.
var private = [...]netip.Prefix{netip.MustParsePrefix("fc00::/7"), netip.MustParsePrefix("fe80::/10")}

// parse reads a list. If whole is set, a text that looks half written is an error.
func parse(text io.Reader, whole bool) (*table, error) {
	p := parser{table: newTable()}
	in := bufio.NewReaderSize(io.LimitReader(text, maxText+1), maxLine+1)
	read, ended := 0, true
	for number := 1; len(p.errs) < maxErrors; number++ {
		line, err := in.ReadSlice('\n')
		read += len(line)
		switch {
		case read > maxText:
			return nil, p.fail(fmt.Errorf("access: the list is longer than %d MiB: shorten it, or join its prefixes to wider ones", maxText>>20))
		case err == bufio.ErrBufferFull:
			return nil, p.fail(&ParseError{Line: number, Column: maxLine + 1, Problem: fmt.Sprintf("the line is longer than %d bytes: write one entry a line", maxLine)})
		case err != nil && err != io.EOF:
			return nil, p.fail(fmt.Errorf("access: line %d cannot be read: %w", number, err))
		}
		if len(line) > 0 {
			ended = line[len(line)-1] == '\n'
			if number == 1 {
				line = bytes.TrimPrefix(line, []byte("\ufeff")) // as some editors write it
			}
			p.line(number, string(bytes.TrimRight(line, "\r\n")))
		}
		if err == io.EOF {
			switch {
			case !whole:
			case read == 0:
				p.errs = append(p.errs, errors.New("access: the file is empty, and may be half written: for an empty list, write a comment"))
			case !ended:
				p.errs = append(p.errs, fmt.Errorf("access: line %d has no line feed, so the file may be half written: end the last line with one", number))
			}
			break
		}
	}
	if err := p.fail(nil); err != nil {
		return nil, err
	}
	return p.table, nil
}

type parser struct {
	table           *table
	agents, secrets int
	errs            []error
}

// fail returns the errors so far with another one.
func (p *parser) fail(err error) error {
	err = errors.Join(append(p.errs, err)...)
	if len(p.errs) == maxErrors {
		return fmt.Errorf("%w\naccess: the rest was not read", err)
	}
	return err
}

func (p *parser) line(number int, text string) {
	e, found, err := parseEntry(text)
	if err == nil && found {
		err = p.add(e, text)
	}
	if err != nil {
		err.Line = number
		p.errs = append(p.errs, err)
	}
}

// add adds an entry, unless the list cannot have it.
func (p *parser) add(e entry, text string) *ParseError {
	refuse := func(format string, args ...any) *ParseError {
		first := strings.Fields(text)[0]
		at := strings.Index(text, first)
		return errorAt(text, word{first, at, at + len(first)}, fmt.Sprintf(format, args...))
	}
	switch e.kind {
	case byAgent:
		if p.agents++; p.agents > maxAgents {
			return refuse("more than %d agents: write parts that several have in common", maxAgents)
		}
	case byHeader:
		if p.secrets++; p.secrets > maxSecrets {
			return refuse("more than %d headers: remove those that are not in use", maxSecrets)
		}
	}
	p.table.add(e)
	return nil
}

// parseEntry reads a line. It reports whether there is an entry.
func parseEntry(line string) (e entry, found bool, _ *ParseError) {
	words, err := split(line)
	if err != nil || len(words) == 0 {
		return e, false, err
	}
	end := word{"", len(line), len(line)}
	arg := func(i int) word {
		if i < len(words) {
			return words[i]
		}
		return end
	}
	wrong := func(w word, format string, args ...any) (entry, bool, *ParseError) {
		return entry{}, false, errorAt(line, w, fmt.Sprintf(format, args...))
	}
	last := 1
	switch first := words[0]; line[first.at:first.end] {
	case "user":
		e = entry{kind: byUser, text: arg(1).text}
		if e.text == "" {
			return wrong(arg(1), "a user is missing: write one, such as user alice")
		}
	case "agent":
		e = entry{kind: byAgent, text: string(lower(make([]byte, 0, maxLine), arg(1).text))}
		if len(e.text) < minAgent {
			return wrong(arg(1), "an agent of less than %d characters is in the User-Agent of too many clients: write more of it, such as agent \"BadBot\"", minAgent)
		}
	case "header":
		e = entry{kind: byHeader, text: http.CanonicalHeaderKey(arg(1).text), secret: arg(2).text}
		switch {
		case !validToken(e.text) || e.text == "Host":
			return wrong(arg(1), "not the name of a header: write header X-Internal-Token and the secret")
		case e.secret == "" || len(e.secret) > maxSecret:
			return wrong(arg(2), "the secret has %d bytes: write 1 to %d, random ones", len(e.secret), maxSecret)
		}
		last = 2
	default:
		prefix, problem := parsePrefix(first.text)
		if problem != "" {
			return wrong(first, "%s", problem)
		}
		e, last = entry{kind: byPrefix, prefix: prefix}, 0
	}
	if len(words) > last+1 {
		return wrong(words[last+1], "more than one entry: write each on a line of its own, a text with blanks in quotes, and # before a comment")
	}
	return e, true, nil
}

const notEntry = "not an entry: write a prefix such as 10.0.0.0/8, an address, or user, agent or header"

// parsePrefix reads a prefix or an address, or returns what is wrong with it.
func parsePrefix(text string) (p netip.Prefix, problem string) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		ip, err := netip.ParseAddr(text)
		switch {
		case err != nil && strings.ContainsAny(text, ".:") && strings.Contains(text, "/"):
			return p, "not a prefix: write one such as 10.0.0.0/8 or 2001:db8:1:2::/64"
		case err != nil:
			return p, notEntry
		case ip.Zone() != "":
			return p, "an address has no zone here: write " + ip.WithZone("").String()
		}
		ip = ip.Unmap()
		return netip.PrefixFrom(ip, ip.BitLen()), ""
	}
	if ip := p.Addr(); ip.Is4In6() {
		if p.Bits() < 96 {
			return p, "matches every IPv4 address: write an IPv4 prefix, such as 10.0.0.0/8"
		}
		p = netip.PrefixFrom(ip.Unmap(), p.Bits()-96)
	}
	switch masked := p.Masked(); {
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
func split(line string) (words []word, _ *ParseError) {
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

// validToken reports whether a text can name a header.
func validToken(s string) bool {
	for _, c := range []byte(s) {
		if c <= ' ' || c >= 0x7f || strings.IndexByte("\"(),/:;<=>?@[\\]{}", c) >= 0 {
			return false
		}
	}
	return s != ""
}
