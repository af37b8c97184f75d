// Package storecheck finds what is wrong with the store of a limiter, for operate.Check and after
// the first decision.
package storecheck

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/notice"
)

// A Check is one of a store.
type Check struct {
	Store     core.Store
	InMemory  bool // whether only this process has the store
	Instances int  // how many processes share the quotas, as the program says
	Lines     *notice.Log
}

// Problems returns what is wrong, apart from what Lines silence. The error joins one for each
// problem.
func (c Check) Problems(ctx context.Context) error {
	if err := ctx.Err(); errors.Is(err, context.Canceled) {
		return err
	}
	var found []error
	for _, err := range append(split(core.Check(ctx, c.Store)), c.memory()) {
		var d *core.Diagnosis
		if err != nil && !(errors.As(err, &d) && c.Lines.Silent(d.Code)) {
			found = append(found, err)
		}
	}
	return errors.Join(found...)
}

// Log writes to Lines what is wrong. It asks a store of several processes in the background.
func (c Check) Log() {
	if c.InMemory {
		c.write(c.memory())
		return
	}
	go func() {
		defer func() { _ = recover() }() // a store's: a panic in this goroutine would end the program
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		c.write(core.Check(ctx, c.Store))
	}()
}

// memory returns an error if quotas are in memory, and the program says that it has several
// instances.
func (c Check) memory() error {
	if !c.InMemory || c.Instances <= 1 {
		return nil
	}
	return &core.Diagnosis{Code: notice.SeveralMemories, Err: fmt.Errorf("limit: the quotas are in memory, and limit.Options.Instances is %d: "+
		"each instance admits the full limit; share the quotas with package redisstore, or leave out Instances", c.Instances)}
}

func (c Check) write(problems error) {
	for _, err := range split(problems) {
		var d *core.Diagnosis
		if errors.As(err, &d) && d.Code != notice.Unreachable { // which the lines of the guard say
			notice.Write(c.Lines, d.Code, "limit: a check has found a problem", 0, "error", d.Err)
		}
	}
}

// split returns the errors that errors.Join has joined.
func split(err error) []error {
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		return all.Unwrap()
	}
	return []error{err}
}
