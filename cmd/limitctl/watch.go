package main

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/routelimit/limit/cmd/limitctl/internal/words"
	"github.com/routelimit/limit/ops/feed"
)

// silence is how long a subscriber hears nothing before it is told why: instances notice
// it within a second, and then publish at least once a second.
const silence = 3 * time.Second

func newWatchCommand() *cobra.Command {
	var at connection
	var asJSON bool
	table := watchTable{zone: time.Local}
	w := watch{silence: silence}
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Print decisions of all instances as they happen",
		Long: `Print decisions of all instances as they happen, one on a line, until Ctrl-C.
The programs publish them by package feed: see docs/watching.md. Each instance
publishes up to 1,000 refusals a second, and 100 admitted requests unless
feed.Options says otherwise. A line says how many were left out. Times are
local, and in UTC with --json. With --sort it prints a table of the keys that
were refused, instead of single decisions.

The exit code is 0 after Ctrl-C, 1 if Redis cannot be used from the start, and 3
for wrong arguments.`,
		Example: `  limitctl watch --redis redis://127.0.0.1:6379 --refused
  limitctl watch --policy "POST /login" --rule per-ip-1m --sort refused
  limitctl watch --redis redis://127.0.0.1:7000 --cluster --key alice --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case table.sort != "" && orders[table.sort] == nil:
				return usageError{fmt.Errorf("--sort %q: write refused, policy, rule or key", table.sort)}
			case table.sort != "" && asJSON:
				return usageError{errors.New("--sort and --json: write one of them")}
			case table.every < time.Second:
				return usageError{fmt.Errorf("--every %v: write a time from 1s up", table.every)}
			}
			client, err := at.dial()
			if err != nil {
				return err
			}
			defer client.Close()
			w.problems = cmd.ErrOrStderr()
			w.explain = func(err error) error { return explained(cmd, err) }
			switch {
			case asJSON:
				w.to = &watchJSON{to: cmd.OutOrStdout()}
			case table.sort != "":
				table.to, table.of, w.to = cmd.OutOrStdout(), w.subject, &table
			default:
				w.to = &watchLines{to: cmd.OutOrStdout(), zone: time.Local}
			}
			return w.run(feed.Subscribe(cmd.Context(), client, at.prefix))
		},
	}
	at.flags(cmd, "`prefix` of channels: feed.Options.Prefix of the programs")
	w.subject.flags(cmd)
	cmd.Flags().BoolVar(&w.refused, "refused", false, "print no admitted requests")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print each decision as a line of JSON")
	cmd.Flags().StringVar(&table.sort, "sort", "", "print a table of the keys that were refused, sorted by this `column`: refused, policy, rule or key")
	cmd.Flags().DurationVar(&table.every, "every", 5*time.Second, "with --sort, how often to print the table")
	return cmd
}

type watch struct {
	subject      // of the decisions to print
	refused bool // whether to print no others
	silence time.Duration
	to      printer
	explain func(error) error

	mu       sync.Mutex // of problems, and failed
	problems io.Writer
	failed   bool // whether Redis failed after the last batch
}

type printer interface {
	event(instance string, e *feed.Event) error
	// missed prints how many decisions an instance left out.
	missed(instance string, at time.Time, admitted, refused int64) error
}

// run prints batches. An error before the first batch ends it.
func (w *watch) run(batches iter.Seq2[feed.Batch, error]) error {
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
	for batch, err := range batches {
		w.mu.Lock()
		w.failed = err != nil
		if err != nil && began {
			fmt.Fprintln(w.problems, "limitctl:", words.Cut(w.explain(err).Error(), 300))
		}
		w.mu.Unlock()
		switch {
		case err != nil && began:
			continue
		case err != nil:
			return err
		}
		began = true
		quiet.Reset(w.silence)
		if err := w.print(&batch, left, time.Now()); err != nil {
			return err
		}
	}
	return nil
}

func (w *watch) print(batch *feed.Batch, left omissions, now time.Time) error {
	for i := range batch.Events {
		e := &batch.Events[i]
		if !w.wants(e) {
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
		if err := w.to.missed(batch.Instance, now, admitted, refused); err != nil {
			return err
		}
	}
	if table, ok := w.to.(*watchTable); ok { // only a table prints by time
		return table.tick(now)
	}
	return nil
}

// wants reports whether to print a decision. Only those that a rule refused or marked name
// rules and keys.
func (w *watch) wants(e *feed.Event) bool {
	if w.refused && e.Allowed || w.policy != "" && e.Policy != w.policy {
		return false
	}
	return w.rule == "" && w.key == "" || slices.ContainsFunc(e.Rules, func(r feed.Rule) bool { return w.refusedBy(e.Policy, &r) })
}

// refusedBy reports whether the flags name a rule that refused a key, as it is or as people read it.
func (s *subject) refusedBy(policy string, r *feed.Rule) bool {
	return s.matches(policy, r.Name, r.Key) || s.matches(policy, r.Name, r.Shown)
}

// omissions adds up what instances left out, so that there is a line a second at most.
type omissions map[string]omission

type omission struct {
	admitted, refused int64
	told              time.Time
}

func (o omissions) add(batch *feed.Batch, now time.Time) (admitted, refused int64) {
	of, known := o[batch.Instance]
	if !known && batch.Admitted+batch.Refused == 0 {
		return 0, 0
	}
	const most = 10_000 // instances; any program with the right may publish names
	if len(o) >= most {
		clear(o)
	}
	of.admitted += batch.Admitted
	of.refused += batch.Refused
	if now.Sub(of.told) >= time.Second-100*time.Millisecond { // batches come every second
		admitted, refused = of.admitted, of.refused
		of = omission{told: now}
	}
	o[batch.Instance] = of
	return admitted, refused
}
