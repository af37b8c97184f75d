package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/mattn/go-isatty"

	"github.com/routelimit/limit/cmd/limitctl/internal/words"
	"github.com/routelimit/limit/cmd/limitctl/replay/accesslog"
)

// A progress is a line in a terminal that says how much of a log has been read.
type progress struct {
	out   io.Writer // nil shows nothing
	log   interface{ Stats() accesslog.Stats }
	size  int64 // bytes; 0 if it is not known
	shown time.Time
}

// progress returns a line on out, or none unless that is a terminal.
func (s *simulation) progress(out io.Writer, log *accesslog.Log) *progress {
	p := &progress{log: log, size: log.Size()}
	if f, ok := out.(*os.File); ok && !s.json && isatty.IsTerminal(f.Fd()) {
		p.out = out
	}
	return p
}

// eraseLine moves a terminal to the beginning of its line, and erases it.
const eraseLine = "\r\x1b[K"

// show writes the line anew, at most ten times a second.
func (p *progress) show(int64) {
	if p.out == nil || time.Since(p.shown) < 100*time.Millisecond {
		return
	}
	p.shown = time.Now()
	stats := p.log.Stats()
	of := ""
	if p.size > 0 {
		of = fmt.Sprintf(" of %s (%.0f%%)", words.Size(p.size), min(100, 100*float64(stats.Bytes)/float64(p.size)))
	}
	fmt.Fprintf(p.out, "%s%s%s read, %s lines", eraseLine, words.Size(stats.Bytes), of, words.Number(stats.Lines))
}

// end removes the line.
func (p *progress) end() {
	if p.out != nil {
		fmt.Fprint(p.out, eraseLine)
	}
}
