// Package control keeps small documents that all instances of a program on one Redis
// share, such as bans: see package access.
//
// A document has a kind, a name, a value of up to 1 MiB, a time after which it ends, and who wrote
// it. Every change is one script, which writes the document, the version of its kind and the
// history together. [Control.Watch] follows a kind: an instance has each change within a second,
// and usually within half of one.
//
// While Redis is unavailable, the documents that an instance knows stay in force until they end. If
// Redis then has lost changes, after a failover or a restart, the instances write the documents
// that they know back. The later change of a document counts, by the clock of Redis: what Redis has
// written or deleted since stays so. To remove a document, call [Control.Delete]. A deletion that
// Redis has lost is lost, unless all instances know of it: check the documents after such a
// failure.
package control

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit/internal/notice"
	"github.com/routelimit/limit/internal/redisfacts"
)

// Bounds on the documents of a kind.
const (
	MaxValue     = 1 << 20  // bytes of a value
	MaxDocuments = 100_000  // documents of a kind
	MaxBytes     = 64 << 20 // bytes of all documents of a kind: each instance keeps them in memory
	MaxHistory   = 1000     // changes that History returns

	maxName = 512 // bytes of a name, and of who wrote a document
	maxKind = 64
	maxNote = 200
)

// ErrFull is wrapped by the error of [Control.Put] if a kind has [MaxDocuments] documents or
// [MaxBytes] bytes.
var ErrFull = errors.New("control: the kind is full")

// Options configures a [Control]. The zero Options is ready to use.
type Options struct {
	// Prefix begins every key; "" means "limit". Set different ones for programs that share a Redis
	// but not their documents. Braces are not allowed.
	Prefix string

	// Log receives a line when the documents of a kind cannot be read, when they can be again, when
	// Redis lost them, and when its user lacks a right. The codes are LIMIT-401 to LIMIT-404. Nil
	// means [slog.Default].
	Log *slog.Logger
}

// A Control reads and writes documents. It is safe for concurrent use, and does not
// close the client.
type Control struct {
	client redis.UniversalClient
	poller redis.UniversalClient // the same client, with a short timeout where it can have one
	prefix string
	log    notice.Log
}

// New returns a Control on a client. A nil options means the zero Options. New panics
// on a nil client, and on a Prefix with braces.
func New(client redis.UniversalClient, options *Options) *Control {
	o := cmp.Or(options, new(Options))
	c := &Control{client: client, poller: redisfacts.Bounded(client, pollTimeout, "control"), prefix: cmp.Or(o.Prefix, "limit"), log: notice.Log{To: o.Log}}
	if strings.ContainsAny(c.prefix, "{}") {
		panic(fmt.Sprintf("control: Prefix %q: write one without braces", c.prefix))
	}
	return c
}

// A Document is one of a kind.
type Document struct {
	Value   []byte    // not to be changed
	Expires time.Time // by the clock of this process; the zero Time if it does not end
	By      string    // who wrote it
	At      time.Time // when it was written, by the clock of Redis

	expires int64 // by the clock of Redis, in milliseconds; 0 if it does not end
}

// A Change is an entry of the history of a kind.
type Change struct {
	Name    string    // "" if an instance wrote documents back that Redis had lost
	By      string    // who changed it
	At      time.Time // when, by the clock of Redis
	Expires time.Time // when the document ends, by the clock of Redis; zero if it does not
	Deleted bool
	Note    string // of Put
}

// Put writes a document, or replaces it. It ends after the time, or never if that is 0. by says who
// writes it.
//
// Names and by are of 1 to 512 bytes of text, and a kind is of a to z, 0 to 9 and "-". An error
// that wraps [ErrFull] changed nothing. After another error of Redis, the document may have been
// written. Put may be repeated. If the user of Redis lacks a right, the error has the command that
// grants all that package control needs.
//
// The note, of up to 200 bytes of text, is about this change, and [Control.History] returns it.
func (c *Control) Put(ctx context.Context, kind, name string, value []byte, expires time.Duration, by string, note ...string) error {
	said := strings.Join(note, " ")
	if err := valid(kind, name, by); err != nil {
		return err
	}
	switch {
	case len(value) > MaxValue:
		return fmt.Errorf("control: a value of %d bytes: write at most %d", len(value), MaxValue)
	case len(said) > maxNote || !utf8.ValidString(said) || strings.ContainsFunc(said, unicode.IsControl):
		return fmt.Errorf("control: a note of %d bytes: write at most %d bytes of UTF-8 without control characters", len(said), maxNote)
	case expires < 0:
		return fmt.Errorf("control: a document that ended %v ago: write how long it lasts, or 0 for one that does not end", -expires)
	}
	ms := int64((expires + time.Millisecond - 1) / time.Millisecond)
	if expires > 1<<62 {
		ms = expires.Milliseconds()
	}
	return c.change(ctx, kind, "put", name, by, value, ms, said)
}

// Delete removes a document. It returns whether there was one.
func (c *Control) Delete(ctx context.Context, kind, name, by string) (bool, error) {
	if err := valid(kind, name, by); err != nil {
		return false, err
	}
	err := c.change(ctx, kind, "delete", name, by, nil, 0, "")
	if errors.Is(err, errAbsent) {
		return false, nil
	}
	return err == nil, err
}

var errAbsent = errors.New("control: no such document")

func (c *Control) change(ctx context.Context, kind, what, name, by string, value []byte, ms int64, note string) error {
	reply, err := changeScript.Run(ctx, c.client, c.keys(kind), rand.Text(), what, name, by, value, ms,
		MaxDocuments, MaxBytes, MaxHistory, note).Text()
	if err != nil {
		return fmt.Errorf("control: %s %s %q: %w", what, kind, name, c.explain(err))
	}
	switch reply {
	case "absent":
		return errAbsent
	case "documents":
		return fmt.Errorf("%w: %s has %d documents: delete some, or let them end", ErrFull, kind, MaxDocuments)
	case "bytes":
		return fmt.Errorf("%w: the documents of %s would have more than %d MiB: delete some, or write shorter ones", ErrFull, kind, MaxBytes>>20)
	}
	return nil
}

// History returns the last changes of a kind, the newest first: at most [MaxHistory].
func (c *Control) History(ctx context.Context, kind string) ([]Change, error) {
	if err := validKind(kind); err != nil {
		return nil, err
	}
	lines, err := c.client.LRange(ctx, c.keys(kind)[2], 0, MaxHistory-1).Result()
	if err != nil {
		return nil, fmt.Errorf("control: history of %s: %w", kind, c.explain(err))
	}
	changes := make([]Change, len(lines))
	for i, line := range lines {
		var said struct {
			Name, By, Note string
			At, Expires    int64 `json:",string"`
			Deleted        bool
		}
		if err := json.Unmarshal([]byte(line), &said); err != nil {
			return nil, fmt.Errorf("control: history of %s: an invalid entry: %w", kind, err)
		}
		changes[i] = Change{Name: said.Name, By: said.By, At: time.UnixMilli(said.At), Deleted: said.Deleted, Note: said.Note}
		if said.Expires > 0 {
			changes[i].Expires = time.UnixMilli(said.Expires)
		}
	}
	return changes, nil
}

// keys returns the keys of a kind, which share a slot of a Cluster. The last two are the times at
// which documents end, and the bytes of all.
func (c *Control) keys(kind string) []string {
	keys := []string{"version", "documents", "history", "expiries", "bytes"}
	for i := range keys {
		keys[i] = redisfacts.ControlKey(c.prefix, kind, keys[i])
	}
	return keys
}

func valid(kind, name, by string) error {
	return errors.Join(validKind(kind), validText("name", name), validText("by", by))
}

func validKind(kind string) error {
	if kind == "" || len(kind) > maxKind || strings.Trim(kind, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return fmt.Errorf("control: kind %q: write 1 to %d of a to z, 0 to 9 and -", kind[:min(len(kind), 2*maxKind)], maxKind)
	}
	return nil
}

func validText(what, s string) error {
	if s == "" || len(s) > maxName || !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
		return fmt.Errorf("control: %s %q: write 1 to %d bytes of UTF-8 without control characters", what, s[:min(len(s), 64)], maxName)
	}
	return nil
}

// explain adds to an error about rights the command that grants them.
func (c *Control) explain(err error) error {
	if !redisfacts.NoRight(err.Error()) {
		return err
	}
	user := ""
	switch client := c.client.(type) {
	case *redis.Client:
		user = client.Options().Username
	case *redis.ClusterClient:
		user = client.Options().Username
	}
	user = cmp.Or(user, "default")
	return fmt.Errorf("%w: let user %q run all that package control needs: %s", err, user, redisfacts.GrantControl(user, c.prefix))
}
