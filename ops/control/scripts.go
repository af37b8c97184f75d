package control

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit/internal/notice"
)

var (
	//go:embed begin.lua
	begin string
	//go:embed change.lua
	change string
	//go:embed changes.lua
	changes string
	//go:embed restore.lua
	restore string

	changeScript  = redis.NewScript(begin + change)
	changesScript = redis.NewScript(begin + changes)
	restoreScript = redis.NewScript(begin + restore)
)

// number returns the number of a version, 0 for none.
func number(version string) int64 {
	digits, _, _ := strings.Cut(version, " ")
	n, _ := strconv.ParseInt(digits, 10, 64)
	return n
}

var errInvalid = errors.New("an invalid document")

// encode returns a document as Redis has it: when it ends and was written, in
// milliseconds, the length of By, By, and the value.
func (d *Document) encode() string {
	return strconv.FormatInt(d.expires, 10) + " " + strconv.FormatInt(d.At.UnixMilli(), 10) + " " + strconv.Itoa(len(d.By)) + " " + d.By + string(d.Value)
}

// decode reads a document at a time of Redis, which is the time local of this process.
func decode(text string, now int64, local time.Time) (d Document, err error) {
	var fields [3]int64
	for i := range fields {
		field, rest, ok := strings.Cut(text, " ")
		if fields[i], err = strconv.ParseInt(field, 10, 64); !ok || err != nil || fields[i] < 0 {
			return d, errInvalid
		}
		text = rest
	}
	if fields[2] > int64(len(text)) {
		return d, errInvalid
	}
	d = Document{By: text[:fields[2]], Value: []byte(text[fields[2]:]), At: time.UnixMilli(fields[1]), expires: fields[0]}
	if d.expires > 0 {
		left := min(d.expires-now, int64(1<<62/time.Millisecond))
		d.Expires = local.Add(time.Duration(left) * time.Millisecond)
	}
	return d, nil
}

// Bounds on the documents of one call that writes back, during which Redis does nothing else.
const (
	batchDocuments = 500
	batchBytes     = 1 << 20
)

// reconcile brings the documents up to date with a Redis that has lost changes which this instance
// knows: after a failover, or a restart with older data or none. It returns the new version.
//
// The instance writes the documents back that Redis does not have, or has from an earlier time.
// What Redis has changed or deleted later stays so: see restore.lua. Other instances may do the
// same meanwhile. If it fails, the version that is known stays unknown to Redis, so the instance
// begins again.
func (w *watcher) reconcile(ctx context.Context, version string, now int64, local time.Time) (string, error) {
	has, _, err := w.scan(ctx, now, local)
	if err != nil {
		return "", err
	}
	var lost []string
	for name, d := range w.documents {
		if theirs, ok := has[name]; !ok || theirs.At.Before(d.At) {
			lost = append(lost, name)
		}
	}
	if len(lost) > 0 {
		notice.Write(&w.log, notice.ControlLost, "control: Redis has lost documents: those that are known are written back", 0, "kind", w.kind,
			"documents", len(lost), "has", number(version), "known", number(w.version))
		if version, err = w.restore(ctx, lost); err != nil {
			return "", err
		}
	}
	return version, w.all(ctx, version, now, local)
}

// restore writes documents back, in several calls. Only the last one changes the
// version: until then, each instance that knows lost documents writes them back itself.
func (w *watcher) restore(ctx context.Context, names []string) (version string, err error) {
	for len(names) > 0 {
		args := []any{rand.Text(), number(w.version), MaxHistory, 0}
		n, bytes := 0, 0
		for ; n < min(len(names), batchDocuments); n++ {
			d := w.documents[names[n]]
			text := d.encode()
			if bytes += len(names[n]) + len(text); n > 0 && bytes > batchBytes {
				break
			}
			args = append(args, names[n], text)
		}
		if names = names[n:]; len(names) == 0 {
			args[3] = 1
		}
		if version, err = restoreScript.Run(ctx, w.client, w.names, args...).Text(); err != nil {
			return "", err
		}
	}
	return version, nil
}
