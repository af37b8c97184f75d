package control

import (
	_ "embed"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
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
