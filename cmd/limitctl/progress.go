package main

import (
	"fmt"
	"io"
	"os"
	"strings"
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
	now   func() time.Time
	begun time.Time
	last  time.Time
	width int // of the line that is shown
}

// progress returns a line on out, or none unless that is a terminal.
func (s *simulation) progress(out io.Writer, log *accesslog.Log) *progress {
	p := &progress{log: log, size: log.Size(), now: time.Now, begun: time.Now()}
	if f, ok := out.(*os.File); ok && !s.json && isatty.IsTerminal(f.Fd()) {
		p.out = out
	}
	return p
}

const (
	progressEvery = 100 * time.Millisecond
	progressWidth = 30
)

// show writes the line anew, at most ten times a second.
func (p *progress) show(int64) {
	if p.out == nil {
		return
	}
	now := p.now()
	if now.Sub(p.last) < progressEvery {
		return
	}
	p.last = now
	stats := p.log.Stats()
	text := fmt.Sprintf("%s read, %d lines, %.0f a second", words.Size(stats.Bytes), stats.Lines, float64(stats.Lines)/max(0.001, now.Sub(p.begun).Seconds()))
	if p.size > 0 {
		part := min(1, float64(stats.Bytes)/float64(p.size))
		full := int(part * progressWidth)
		text = fmt.Sprintf("[%s%s] %3.0f%% of %s, %d lines, %.0f a second", strings.Repeat("#", full), strings.Repeat("-", progressWidth-full),
			100*part, words.Size(p.size), stats.Lines, float64(stats.Lines)/max(0.001, now.Sub(p.begun).Seconds()))
	}
	p.write(text)
}

// end removes the line.
func (p *progress) end() {
	if p.out != nil && p.width > 0 {
		p.write("")
		fmt.Fprint(p.out, "\r")
	}
}

// write shows a text in place of the last one.
func (p *progress) write(text string) {
	fmt.Fprintf(p.out, "\r%s%s", text, strings.Repeat(" ", max(0, p.width-len(text))))
	p.width = len(text)
}
