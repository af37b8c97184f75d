package access

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/notice"
	"github.com/routelimit/limit/ops/control"
)

// Bans are clients that operators bar while the program runs, for a time or for good. All instances
// on one Redis share them: each bars a client within a second of [Bans.Ban]. Make it with
// [NewBans]. It is safe for concurrent use.
//
// While Redis is unavailable the bans stay in force until they end; see package
// control. A barred client costs Redis nothing.
type Bans struct {
	log     *notice.Log
	control *control.Control
	state   atomic.Pointer[banned]
	ignored int // bans that have no effect, when they were read last
}

// banned is what is known of the bans. It does not change.
type banned struct {
	table *table
	bans  []Ban
}

// A Ban is one of [Bans].
type Ban struct {
	Entry  string    // as in a list: an address, a prefix, a user or an agent
	Until  time.Time // by the clock of this process; the zero Time if it is for good
	By     string    // who bars the client
	At     time.Time // since when, by the clock of Redis
	Reason string
}

const (
	kindOfBans = "bans"
	maxReason  = 1000
)

// NewBans returns the bans of a Control, and follows them until ctx ends. If Redis is
// unavailable, there are none until it is back, which the Control logs.
func NewBans(ctx context.Context, c *control.Control, options *Options) *Bans {
	b := &Bans{log: options.log(), control: c}
	b.state.Store(&banned{table: newTable()})
	if err := c.Watch(ctx, kindOfBans, b.apply); err != nil {
		panic(err) // the kind is valid
	}
	return b
}

// ReadBans returns the bans that a Control has now, and does not follow them. It is for
// commands: it waits for a slow Redis, and returns an error if Redis cannot be read.
func ReadBans(ctx context.Context, c *control.Control, options *Options) (*Bans, error) {
	documents, err := c.Read(ctx, kindOfBans)
	if err != nil {
		return nil, err
	}
	b := &Bans{log: options.log(), control: c}
	b.apply(documents)
	return b, nil
}

// Ban bars the clients of an entry, in the form of a list: "203.0.113.9", "2001:db8:1:2::/64",
// "user alice" or `agent "BadBot"`. Write the /64 of an IPv6 client, which can send from all its
// addresses. [limit.Never] bars them for good. Ban replaces a ban of the same entry. by says who
// bars them, and the reason, of up to 1,000 bytes, why. A ban of a user needs the User of
// [limit.Options], or that of an adapter.
//
// An error is about the arguments, or about Redis; then the client may be barred. Ban may be
// repeated.
func (b *Bans) Ban(ctx context.Context, entry string, d time.Duration, by, reason string) error {
	e, err := ParseEntry(entry)
	switch {
	case err != nil:
		return err
	case d <= 0:
		return fmt.Errorf("access: a ban of %v: write how long it lasts, or limit.Never", d)
	case len(reason) > maxReason || !utf8.ValidString(reason):
		return fmt.Errorf("access: a reason of %d bytes: write at most %d bytes of UTF-8", len(reason), maxReason)
	case d == limit.Never:
		d = 0 // which a document has for good
	}
	value, err := json.Marshal(banValue{reason})
	if err != nil {
		return err
	}
	return b.control.Put(ctx, kindOfBans, e.String(), value, d, by)
}

type banValue struct {
	Reason string `json:"reason"`
}

// Unban ends the ban of an entry. It returns whether there was one. Bans of other
// entries stay, such as that of a prefix around an address.
func (b *Bans) Unban(ctx context.Context, entry, by string) (bool, error) {
	e, err := ParseEntry(entry)
	if err != nil {
		return false, err
	}
	return b.control.Delete(ctx, kindOfBans, e.String(), by)
}

// List returns the bans that this instance knows, sorted by entry.
func (b *Bans) List() []Ban {
	now := time.Now()
	return slices.DeleteFunc(slices.Clone(b.state.Load().bans), func(ban Ban) bool { return !ban.Until.IsZero() && !now.Before(ban.Until) })
}

// History returns the last changes of the bans, the newest first. The Name of a change is its
// entry.
func (b *Bans) History(ctx context.Context) ([]control.Change, error) {
	return b.control.History(ctx, kindOfBans)
}

// Bar returns how much longer a client is barred, by the longest of its bans: 0 if it is not, and
// [limit.Never] if it is for good. It is for [limit.Options].Bar.
func (b *Bans) Bar(c limit.Client) time.Duration { return b.state.Load().table.remaining(c) }

func (b *Bans) apply(documents map[string]control.Document) {
	next := &banned{table: newTable(), bans: make([]Ban, 0, len(documents))}
	entries := make([]Entry, 0, len(documents))
	ignored := 0
	for _, name := range slices.Sorted(maps.Keys(documents)) { // in the same order on all instances
		d := documents[name]
		e, err := ParseEntry(name)
		if err != nil {
			ignored++
			continue
		}
		var value banValue
		_ = json.Unmarshal(d.Value, &value) // a ban without its reason is still one
		e.until = d.Expires
		entries = append(entries, e)
		next.bans = append(next.bans, Ban{Entry: name, Until: d.Expires, By: d.By, At: d.At, Reason: value.Reason})
	}
	slices.SortStableFunc(entries, func(x, y Entry) int { return cmp.Compare(x.prefix.Bits(), y.prefix.Bits()) })
	for _, e := range entries {
		if next.table.add(e) != "" {
			ignored++
		}
	}
	b.state.Store(next)
	if ignored > 0 && ignored != b.ignored {
		notice.Write(b.log, notice.BanIgnored, "access: bans that are not entries, and agents beyond the first 1,000, have no effect", 0, "bans", ignored)
	}
	b.ignored = ignored
}
