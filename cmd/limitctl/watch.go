package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/routelimit/limit/cmd/limitctl/internal/redisclient"
	"github.com/routelimit/limit/cmd/limitctl/internal/words"
	"github.com/routelimit/limit/ops/feed"
)

// silence is how long a subscriber hears nothing before it is told why: instances notice
// it within a second, and then publish at least once a second.
const silence = 3 * time.Second

func newWatchCommand() *cobra.Command {
	var at connection
	var asJSON bool
	w := watch{silence: silence}
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Print decisions of all instances as they happen",
		Long: `Print decisions of all instances as they happen, one on a line, until Ctrl-C. The
programs publish them by package feed: see docs/watching.md. Each instance publishes up
to 1,000 refusals a second, and 100 admitted requests unless feed.Options says otherwise.
A line says how many were left out. Times are local, and in UTC with --json.

The exit code is 0 after Ctrl-C, 1 if Redis cannot be used from the start, and 3 for
wrong arguments.`,
		Example: `  limitctl watch --redis redis://127.0.0.1:6379 --refused
  limitctl watch --redis redis://127.0.0.1:7000 --cluster --policy "POST /login" --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := at.dial()
			if err != nil {
				return err
			}
			defer client.Close()
			w.problems = cmd.ErrOrStderr()
			if asJSON {
				w.to = &watchJSON{to: cmd.OutOrStdout()}
			} else {
				w.to = &watchLines{to: cmd.OutOrStdout(), zone: time.Local}
			}
			return w.run(feed.Subscribe(cmd.Context(), client, at.prefix))
		},
	}
	at.flags(cmd, "`prefix` of channels: feed.Options.Prefix of the programs")
	cmd.Flags().StringVar(&w.policy, "policy", "", "print only the decisions of the policy of this `name`, such as \"POST /login\"")
	cmd.Flags().BoolVar(&w.refused, "refused", false, "print no admitted requests")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print each decision as a line of JSON")
	return cmd
}

// A watch prints what a subscriber receives.
type watch struct {
	policy  string // of the decisions to print; "" for all
	refused bool   // whether to print no others
	silence time.Duration
	to      printer

	mu       sync.Mutex // of problems, and failed
	problems io.Writer
	failed   bool // whether Redis failed after the last batch
}

// A printer prints decisions.
type printer interface {
	event(instance string, e *feed.Event) error
	// missed prints how many decisions an instance left out.
	missed(instance string, at time.Time, admitted, refused int64) error
}

// run prints batches. An error before the first batch ends it.
func (w *watch) run(batches func(func(feed.Batch, error) bool)) (failure error) {
	quiet := time.AfterFunc(w.silence, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.failed {
			fmt.Fprintln(w.problems, "nothing publishes decisions: add feed.Publish(limiter, client, nil) to the program, see docs/watching.md, or check --prefix")
		}
	})
	defer quiet.Stop()
	left := make(omissions)
	began := false
	batches(func(batch feed.Batch, err error) bool {
		w.mu.Lock()
		w.failed = err != nil
		if err != nil && began {
			fmt.Fprintln(w.problems, "limitctl:", words.Cut(redisclient.Explain(err).Error(), 300))
		}
		w.mu.Unlock()
		if err != nil {
			if !began {
				failure = err
			}
			return began
		}
		began = true
		quiet.Reset(w.silence)
		failure = w.print(&batch, left, time.Now())
		return failure == nil
	})
	return failure
}

func (w *watch) print(batch *feed.Batch, left omissions, now time.Time) error {
	for i := range batch.Events {
		e := &batch.Events[i]
		if w.policy != "" && e.Policy != w.policy || w.refused && e.Allowed {
			continue
		}
		if err := w.to.event(batch.Instance, e); err != nil {
			return err
		}
	}
	if w.refused {
		batch.Admitted = 0
	}
	if admitted, refused := left.add(batch, now); admitted+refused > 0 {
		return w.to.missed(batch.Instance, now, admitted, refused)
	}
	return nil
}

// omissions adds up what instances left out, so that there is a line a second at most.
type omissions map[string]*omission

type omission struct {
	admitted, refused int64
	told              time.Time
}

// add returns what to print now.
func (o omissions) add(batch *feed.Batch, now time.Time) (admitted, refused int64) {
	if batch.Admitted+batch.Refused == 0 && o[batch.Instance] == nil {
		return 0, 0
	}
	const most = 10_000 // instances; any program with the right may publish names
	if len(o) >= most {
		clear(o)
	}
	of := o[batch.Instance]
	if of == nil {
		of = new(omission)
		o[batch.Instance] = of
	}
	of.admitted += batch.Admitted
	of.refused += batch.Refused
	if now.Sub(of.told) < time.Second-100*time.Millisecond { // batches come every second
		return 0, 0
	}
	admitted, refused = of.admitted, of.refused
	*of = omission{told: now}
	return admitted, refused
}
