package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/redisfacts"
)

// unavailable holds the error codes of a Redis that cannot decide now, whatever the request. A code
// that a client of the program could cause must not be here, since the request may then be
// admitted.
var unavailable = map[string]bool{
	"LOADING":     true, // reading its data from disk
	"MASTERDOWN":  true, // a replica without a primary
	"READONLY":    true, // a replica, such as a demoted primary
	"NOREPLICAS":  true, // too few replicas to write
	"CLUSTERDOWN": true, // slots without a server
	"TRYAGAIN":    true, // a slot that is migrating
	"MOVED":       true, // a slot on another server, after all redirections
	"ASK":         true,
	"OOM":         true, // above maxmemory
	"MISCONF":     true, // cannot write to disk
	"BUSY":        true, // running a slow script
	"UNKILLABLE":  true,
	"NOAUTH":      true, // the password has changed
	"WRONGPASS":   true,
	"NOSCRIPT":    true, // the script was flushed again
}

// unavailableMessages begin errors of the same kind without a code of their own.
var unavailableMessages = []string{
	"ERR max number of clients",
	"ERR Error running script: Script killed by user",
	"ERR invalid password",
	"ERR Protocol error: unauthenticated", // a long call without a password
	"ERR This instance has cluster support disabled",
}

// unknownCommand is how a Sentinel, a proxy, or a server that renames commands begins its reply to
// EVALSHA. It decides nothing then. A server that lacks only INFO replies the same to that.
const unknownCommand = "ERR unknown command"

// isUnavailable reports whether an error reply is about the state of the server.
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

// isScriptError reports whether the script failed. It reads and checks everything
// before it writes, so nothing was taken.
func isScriptError(err error) bool {
	code, _, ok := replyOf(err)
	return ok && code == "ERR" && !errors.Is(err, core.ErrUnavailable)
}

// isRefusedKey reports whether the user may not touch a key that a client chose: see
// denied. Redis refuses the call before it runs, so nothing was taken.
func isRefusedKey(err error) bool {
	return err != nil && redisfacts.NoRight(err.Error()) && !errors.Is(err, core.ErrUnavailable)
}

// explain classifies an error. It returns the error of ctx if that has ended, one
// that wraps core.ErrOutOfReach if the infrastructure failed, or else err.
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
		s.refreshLayout()
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, errNoTurn):
		return s.reach.Load().err
	case errors.Is(err, core.ErrUnavailable):
		return err
	case replied && !isUnavailable(code, message) && !strings.HasPrefix(message, unknownCommand):
		return err
	}
	return fmt.Errorf("%w: %w", core.ErrOutOfReach, err)
}

// moved holds the error codes of a Cluster whose layout has changed.
var moved = map[string]bool{"MOVED": true, "ASK": true, "CLUSTERDOWN": true, "READONLY": true, "MASTERDOWN": true}
