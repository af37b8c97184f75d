// Package access lists the clients that limits spare or bar:
//
//	ours, err := access.Parse(strings.NewReader("10.0.0.0/8"), nil)
//	…
//	bad, err := access.Watch(ctx, "/etc/service/barred", nil)
//	…
//	limiter := limit.New(store, &limit.Options{Exempt: ours.Matches, Bar: bad.Bar})
//
// The limiter says who a client is: its address by Proxies, and its user by User, of
// [limit.Options].
//
// A [List] is read from text, or from a file that may change. [Bans] are entries that
// operators add and remove while the program runs, on all its instances at once.
//
// # Text
//
// A list has one entry a line, and comments:
//
//	10.0.0.0/8            # a prefix, or an address
//	2001:db8:1:2::/64     # an IPv6 client has at least a /64
//	user alice
//	agent "BadBot"        # a part of the User-Agent, in upper or lower case
//
// A text with blanks, quotes or # in it is written in double quotes, with the escapes
// of Go. # begins a comment at the start of a line and after a blank.
//
// A request matches if one entry does. Users are compared byte by byte. Of the User-Agent, the
// first 1,024 bytes count. A client can write any User-Agent, so exempt no client by that.
package access

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/filewatch"
	"github.com/routelimit/limit/internal/notice"
	"github.com/routelimit/limit/operate"
)

// Bounds on a list. The length of a text bounds the number of its prefixes and users.
const (
	maxText   = 8 << 20
	maxLine   = 4096
	maxAgents = 1000 // each is searched for in each request
	minAgent  = 3
	maxErrors = 10

	// No organization has more addresses than a prefix of so many bits.
	minBits4 = 8
	minBits6 = 16
)

// Options configures a [List] or [Bans]. The zero Options is ready to use.
type Options struct {
	// Log receives a line when a list could not be read, when it has changed, when a ban
	// has no effect, and when a list exempts a trusted proxy. The codes are LIMIT-405,
	// LIMIT-406 and LIMIT-117. Nil means [slog.Default].
	Log *slog.Logger
}

func (o *Options) log() *notice.Log {
	return &notice.Log{To: cmp.Or(o, new(Options)).Log}
}

// A List is a set of entries that requests match or not. Make it with [Parse] or
// [Watch]. It is safe for concurrent use.
type List struct {
	log   *notice.Log
	table atomic.Pointer[table]
}

// NewList returns a list of entries: at most 1,000 agents.
func NewList(entries []Entry, options *Options) (*List, error) {
	l, t := &List{log: options.log()}, newTable()
	for _, e := range entries {
		if problem := t.add(e); problem != "" {
			return nil, errors.New("access: " + problem)
		}
	}
	l.table.Store(t)
	return l, nil
}

// Parse reads a list of at most 8 MiB, in the form that the package describes. The error names the
// line and column of up to 10 mistakes, and says what to write instead. It is a mistake to list all
// addresses (0.0.0.0/0).
func Parse(text io.Reader, options *Options) (*List, error) {
	t, err := parse(text)
	if err != nil {
		return nil, err
	}
	l := &List{log: options.log()}
	l.table.Store(t)
	return l, nil
}

func parse(text io.Reader) (*table, error) {
	limited := &io.LimitedReader{R: text, N: maxText + 1}
	lines := bufio.NewScanner(limited)
	lines.Buffer(nil, maxLine+len("\r\n")+1)
	t, number, errs := newTable(), 0, []error(nil)
	for len(errs) < maxErrors && lines.Scan() {
		number++
		line := lines.Text()
		if number == 1 {
			line = strings.TrimPrefix(line, "\ufeff") // as some editors write it
		}
		if err := t.addLine(line); err != nil {
			err.(*ParseError).Line = number
			errs = append(errs, err)
		}
	}
	switch {
	case len(errs) == maxErrors:
		errs = append(errs, errors.New("access: the rest was not read"))
	case limited.N <= 0:
		errs = append(errs, fmt.Errorf("access: the list is longer than %d MiB: shorten it, or join its prefixes to wider ones", maxText>>20))
	case lines.Err() == bufio.ErrTooLong:
		errs = append(errs, &ParseError{Line: number + 1, Column: maxLine + 1, Problem: fmt.Sprintf("the line is longer than %d bytes: write one entry a line", maxLine)})
	case lines.Err() != nil:
		errs = append(errs, fmt.Errorf("access: line %d cannot be read: %w", number+1, lines.Err()))
	}
	return t, errors.Join(errs...)
}

// addLine adds the entry of a line, if it has one. Its errors are of type [*ParseError].
func (t *table) addLine(line string) error {
	e, err := ParseEntry(line)
	if err == errNoEntry {
		return nil
	}
	if err != nil {
		return err
	}
	if problem := t.add(e); problem != "" {
		first := strings.Fields(line)[0]
		at := strings.Index(line, first)
		return errorAt(line, word{first, at, at + len(first)}, problem)
	}
	return nil
}

// Watch reads a list from a file, and reads it again whenever the file changes, until ctx ends:
// when it is written, when another file is renamed to its name, and when a symbolic link on its
// path leads elsewhere, as in a mounted ConfigMap. A change is in force about a second after the
// last write to the file.
//
// The error is about the file as it is now, and has all that [Parse] reports. Later, a file that is
// missing, invalid or half written changes nothing, and is logged once. One that is empty, or that
// does not end with a line feed, counts as half written. For an empty list, write a comment.
func Watch(ctx context.Context, path string, options *Options) (*List, error) {
	l, file := &List{log: options.log()}, filewatch.File{Path: path, Most: maxText}
	text, err := file.Read()
	if err := l.load(path, text, err); err != nil {
		return nil, err
	}
	logged := "" // since the last valid file
	go file.Follow(ctx, func(text []byte, err error) {
		if err = l.load(path, text, err); err == nil {
			logged = ""
			cmp.Or(l.log.To, slog.Default()).Info("access: a list has changed", "path", path)
		} else if err.Error() != logged {
			logged = err.Error()
			notice.Write(l.log, notice.ListUnread, "access: a list could not be read: the one read before stays in force", 0, "path", path, "error", logged)
		}
	})
	return l, nil
}

// load replaces the entries by those of a file, unless it could not be read.
func (l *List) load(path string, text []byte, err error) error {
	if err != nil {
		return fmt.Errorf("access: %w", err)
	}
	var t *table
	switch {
	case len(text) == 0:
		err = errors.New("access: the file is empty, and may be half written: for an empty list, write a comment")
	case text[len(text)-1] != '\n':
		err = fmt.Errorf("access: line %d has no line feed, so the file may be half written: end the last line with one", bytes.Count(text, []byte("\n"))+1)
	default:
		t, err = parse(bytes.NewReader(text))
	}
	if err == nil {
		l.table.Store(t)
		return nil
	}
	return fmt.Errorf("%s: %w", path, err)
}

// Matches reports whether the client of a request matches an entry. It is for
// [limit.Options].Exempt. It logs once if an entry contains a proxy that the limiter trusts:
// requests that it sends without the address of a client are exempt.
func (l *List) Matches(c limit.Client) bool {
	t := l.table.Load()
	if c.Limiter != nil && t.checked.Load() != c.Limiter && !t.warned.Load() {
		t.checkProxies(c.Limiter, l.log)
	}
	return t.remaining(c) != 0
}

// Bar returns [limit.Never] if the client of a request matches an entry, and 0 if it does not. It
// is for [limit.Options].Bar. Together with another list or with [Bans], write
//
//	Bar: func(c limit.Client) time.Duration { return max(list.Bar(c), bans.Bar(c)) }
func (l *List) Bar(c limit.Client) time.Duration { return l.table.Load().remaining(c) }

// checkProxies warns if an entry contains a trusted proxy, or is one.
func (t *table) checkProxies(l *limit.Limiter, log *notice.Log) {
	t.checked.Store(l)
	for _, proxy := range operate.Proxies(l).Trusted {
		if t.prefixes.OverlapsPrefix(proxy) && !t.warned.Swap(true) {
			notice.Write(log, notice.ExemptProxy, "access: a list exempts a trusted proxy, and so every client whose address the proxy does not send: "+
				"write prefixes without the proxy", 0, "proxy", proxy)
			return
		}
	}
}
