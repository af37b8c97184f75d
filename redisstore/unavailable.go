package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit/core"
)

// unavailable holds the codes with which Redis says that it is in no state to
// decide, whatever was asked. Codes that a client of the program could cause
// must not be here, since what follows may be to admit.
var unavailable = map[string]bool{
	"LOADING":     true, // reads its data from disk
	"MASTERDOWN":  true, // a replica without a primary
	"READONLY":    true, // a replica, such as a primary that has been demoted
	"NOREPLICAS":  true, // too few replicas to write
	"CLUSTERDOWN": true, // slots without a server
	"TRYAGAIN":    true, // a slot on its way between two servers
	"MOVED":       true, // a slot that is elsewhere, after all redirections
	"ASK":         true,
	"OOM":         true, // above maxmemory
	"MISCONF":     true, // cannot write to disk
	"BUSY":        true, // runs somebody's slow script
	"UNKILLABLE":  true,
	"NOAUTH":      true, // the password has changed
	"WRONGPASS":   true,
	"NOSCRIPT":    true, // the script is gone again
}

// Messages of the same kind that have no code of their own.
var unavailableMessages = []string{
	"ERR max number of clients",
	"ERR Error running script: Script killed by user",
	"ERR invalid password",
	"ERR Protocol error: unauthenticated", // as to a call of more than ten words without a password
}

// isUnavailable reports whether the code of a reply, or its message, says so.
func isUnavailable(code, message string) bool {
	for _, prefix := range unavailableMessages {
		if strings.HasPrefix(message, prefix) {
			return true
		}
	}
	return unavailable[code]
}

// replyOf returns the code and the message of an error that the server sent.
func replyOf(err error) (code, message string, ok bool) {
	var reply redis.Error
	if !errors.As(err, &reply) || errors.Is(err, redis.Nil) {
		return "", "", false
	}
	message = reply.Error()
	code, _, _ = strings.Cut(message, " ")
	if strings.HasPrefix(message, "ERR Error running script") { // the form of Redis 6
		if _, inner, found := strings.Cut(message, ": -"); found {
			code, _, _ = strings.Cut(inner, " ")
		}
	}
	return code, message, true
}

// isScriptError reports whether the server ran the script in vain. The script
// reads and checks everything before it writes, so nothing was taken.
func isScriptError(err error) bool {
	code, _, ok := replyOf(err)
	return ok && code == "ERR" && !errors.Is(err, core.ErrUnavailable)
}

// explain returns an error that says whose matter it is: that of ctx if it has
// ended, one that wraps core.ErrOutOfReach for the infrastructure, or err.
func (s *Store) explain(ctx context.Context, err error) error {
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, errPanicked) {
		return err
	}
	code, message, replied := replyOf(err)
	if !replied || moved[code] {
		s.reload()
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return s.errTimeout
	case errors.Is(err, core.ErrUnavailable):
		return err
	case replied && !isUnavailable(code, message):
		return err
	}
	return fmt.Errorf("%w: %w", core.ErrOutOfReach, err)
}

// moved holds the codes that tell of another layout of the Cluster.
var moved = map[string]bool{"MOVED": true, "ASK": true, "CLUSTERDOWN": true, "READONLY": true, "MASTERDOWN": true}

const (
	reloadEvery = 100 * time.Millisecond
	reloadTimes = 3 // for a failure
	maxReloads  = 8 // at once
)

// reload asks the Cluster which server has which slot. By itself the client asks
// once a minute, and when a server tells it of a move: of a dead one nobody does.
//
// It asks several times, so that who calls again a quarter of a second later, as a
// breaker does, goes by what is true then, and not by what was true when its last
// call failed. It asks any server, and if that stands still waits 5 s for it. ReloadState
// would let all others wait behind that; this asks another one.
func (s *Store) reload() {
	client, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return
	}
	now, last := time.Now().UnixNano(), s.reloaded.Load()
	if now-last < int64(reloadEvery) || !s.reloaded.CompareAndSwap(last, now) {
		return
	}
	if s.reloads.Add(1) > maxReloads {
		s.reloads.Add(-1)
		return
	}
	go s.ask(client, reloadTimes)
}

// ask asks so many times. Between them nothing but a timer is left, since the store
// is not told when the client is closed.
func (s *Store) ask(client *redis.ClusterClient, times int) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	client.ForEachMaster(ctx, func(context.Context, *redis.Client) error { return nil }) // asks first
	cancel()
	if times == 1 {
		s.reloads.Add(-1)
		return
	}
	time.AfterFunc(reloadEvery, func() { s.ask(client, times-1) })
}
