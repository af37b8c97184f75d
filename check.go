package limit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/notice"
)

// A Diagnosis is a problem that [Limiter.Check] has found, with the code that
// docs/diagnostics.md explains. Find it with [errors.As].
type Diagnosis = core.Diagnosis

// Check returns what is wrong before the first request: a store that cannot be reached
// or written, evicts keys, or withholds information that the store needs, and quotas in
// memory although the program has several instances. Call it before the program serves:
//
//	if err := limiter.Check(ctx); err != nil {
//		log.Fatal(err)
//	}
//
// The error joins one [*Diagnosis] for each problem that [Options].Silence does not
// name, or is the error of ctx if that was canceled. Check changes no quota, and waits
// for the store until ctx ends, at most 5 s. It checks stores of package redisstore, and
// others that have a Check method: see [core.Check].
//
// If the program does not call Check, the same problems are logged: failures of the
// store when they happen, and the rest after the first decision.
func (l *Limiter) Check(ctx context.Context) error {
	if err := ctx.Err(); errors.Is(err, context.Canceled) {
		return err
	}
	var found []error
	for _, err := range append(errorsOf(core.Check(ctx, l.engine.Store)), l.checkMemory()) {
		var d *Diagnosis
		if err != nil && !(errors.As(err, &d) && l.lines.Silent(d.Code)) {
			found = append(found, err)
		}
	}
	return errors.Join(found...)
}

// errorsOf returns the errors that errors.Join has joined.
func errorsOf(err error) []error {
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		return all.Unwrap()
	}
	return []error{err}
}

// checkMemory returns an error if quotas are in memory, and the program says that it has
// several instances.
func (l *Limiter) checkMemory() error {
	if !l.engine.InMemory || l.options.Instances <= 1 {
		return nil
	}
	return &Diagnosis{Code: notice.SeveralMemories, Err: fmt.Errorf("limit: the quotas are in memory, and limit.Options.Instances is %d: "+
		"each instance admits the full limit; share the quotas with package redisstore, or leave out Instances", l.options.Instances)}
}

// What to look at after the next decision.
const (
	lookAtStore   uint32 = 1 << iota // if the store has made it
	lookAtChanges                    // if the last change was a second ago
)

// lookOnce looks for problems after a decision, and logs them. A store that fails has its
// own lines.
func (l *Limiter) lookOnce(look uint32, mode core.Mode) {
	n := &l.notices
	if look&lookAtChanges != 0 && time.Now().UnixNano()-n.changed.Load() > int64(time.Second) && n.look.And(^lookAtChanges)&lookAtChanges != 0 {
		l.noticeUndeclared()
	}
	if look&lookAtStore != 0 && mode == core.ModeExact && n.look.And(^lookAtStore)&lookAtStore != 0 {
		l.lookAtStore()
	}
}

func (l *Limiter) lookAtStore() {
	if l.engine.InMemory {
		l.logProblems(l.checkMemory())
		return
	}
	go func() {
		defer func() { _ = recover() }() // a store's: a panic in this goroutine would end the program
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		l.logProblems(core.Check(ctx, l.engine.Store))
	}()
}

func (l *Limiter) logProblems(problems error) {
	for _, err := range errorsOf(problems) {
		var d *Diagnosis
		if errors.As(err, &d) && d.Code != notice.Unreachable { // which the lines of the guard say
			notice.Write(l.log(), d.Code, "limit: a check has found a problem", 0, "error", d.Err)
		}
	}
}
