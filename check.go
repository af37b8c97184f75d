package limit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/notice"
)

// A Diagnosis is a problem that [Limiter.Check] has found, with the code that
// docs/diagnostics.md explains. Find it with [errors.As].
type Diagnosis = core.Diagnosis

// Check returns what is known to be wrong before the first request: whether the store
// can be reached and written, evicts keys, or withholds what it needs, and whether the
// quotas are in memory although several instances seem to run. Call it before the
// program serves:
//
//	if err := limiter.Check(ctx); err != nil {
//		log.Fatal(err)
//	}
//
// The error joins one [*Diagnosis] for each problem that [Options].Silence does not
// name, or is the error of ctx if that was canceled. Check changes no quota and waits
// for the store as long as ctx, at most 5 s. It asks stores of package redisstore, and
// others that have such a method: see [core.Check].
//
// A program that does not call Check finds the same in its log: what a store says
// about its requests, and the rest after the first decision.
func (l *Limiter) Check(ctx context.Context) error {
	if err := ctx.Err(); errors.Is(err, context.Canceled) {
		return err
	}
	var found []error
	for _, err := range append(errorsOf(core.Check(ctx, l.store)), l.checkMemory()) {
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

// checkMemory returns an error if quotas are in memory, and several instances seem to
// run.
func (l *Limiter) checkMemory() error {
	if !l.inMemory {
		return nil
	}
	sign := fmt.Sprintf("limit.Options.Instances is %d", l.options.Instances)
	if l.options.Instances == 0 {
		sign = severalInstances(os.Getenv)
	}
	if l.options.Instances == 1 || sign == "" {
		return nil
	}
	return &Diagnosis{Code: notice.SeveralMemories, Err: fmt.Errorf("limit: the quotas are in memory, and several instances seem to run (%s): "+
		"each admits the full limit; share the quotas with package redisstore, or set limit.Options.Instances to 1 if this is the only one", sign)}
}

// severalInstances returns what in the environment of the process says that there are
// others: a number of this instance above the first, or a platform that runs several
// unless it is told not to. It returns "" for everything else.
func severalInstances(env func(string) string) string {
	for _, index := range []string{"CF_INSTANCE_INDEX", "NOMAD_ALLOC_INDEX"} {
		if v := env(index); v != "" && v != "0" {
			return index + " is " + v
		}
	}
	if dyno := env("DYNO"); strings.HasPrefix(dyno, "web.") && dyno != "web.1" {
		return "DYNO is " + dyno
	}
	for _, platform := range []string{"AWS_LAMBDA_FUNCTION_NAME", "FUNCTIONS_WORKER_RUNTIME", "K_SERVICE", "GAE_INSTANCE", "FLY_MACHINE_ID"} {
		if env(platform) != "" {
			return platform + " is set"
		}
	}
	if pod := env("HOSTNAME"); env("KUBERNETES_SERVICE_HOST") != "" && replicated(pod) {
		return "HOSTNAME is " + pod + ", a pod of a Deployment or not the first of a StatefulSet"
	}
	return ""
}

// replicated reports whether the name of a pod is one of a Deployment, such as
// web-5d4f9c7b8-x2x7k, or of a StatefulSet above its first, such as web-1.
func replicated(pod string) bool {
	parts := strings.Split(pod, "-")
	last := parts[len(parts)-1]
	if len(parts) > 1 && strings.Trim(last, "0123456789") == "" && len(last) < 4 && last != "" && last != "0" {
		return true
	}
	if len(parts) < 3 || len(last) != 5 || !random(last) {
		return false
	}
	hash := parts[len(parts)-2] // of the ReplicaSet; a CronJob has the time there, in digits
	return len(hash) >= 6 && random(hash) && strings.Trim(hash, "0123456789") != ""
}

// random reports whether Kubernetes may have chosen a part of a name: it leaves out
// vowels, and digits that look like them.
func random(part string) bool { return strings.Trim(part, "bcdfghjklmnpqrstvwxz2456789") == "" }

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
	if l.inMemory {
		l.logProblems(l.checkMemory())
		return
	}
	go func() {
		defer func() { _ = recover() }() // a store's: a panic in this goroutine would end the program
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		l.logProblems(core.Check(ctx, l.store))
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
