package access

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
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
	table *table
	errs  []error
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
		if problem := p.table.add(e); problem != "" {
			first := strings.Fields(text)[0]
			at := strings.Index(text, first)
			err = errorAt(text, word{first, at, at + len(first)}, problem)
		}
	}
	if err != nil {
		err.Line = number
		p.errs = append(p.errs, err)
	}
}
