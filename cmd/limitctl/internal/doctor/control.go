package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit/internal/redisfacts"
)

// usualKinds are the kinds of documents that the library has. They are found without
// SCAN, which programs need no right to.
var usualKinds = []string{"bans", "overrides", "policy"}

// maxKinds bounds the kinds and unknown keys that are looked at.
const maxKinds = 50

// isControl reports whether a key is one of package control. Doctor never proposes to
// delete those, also if it does not know them.
func isControl(prefix, name string) bool { return strings.HasPrefix(name, prefix+":control:{") }

// note adds a key of package control that a scan has found.
func (c *Control) note(prefix, name string) {
	kind, _, ok := redisfacts.ParseControlKey(prefix, name)
	switch {
	case !ok && len(c.Unknown) < maxKinds:
		c.Unknown = append(c.Unknown, name)
	case ok && len(c.Kinds) < maxKinds && !slices.ContainsFunc(c.Kinds, func(k ControlKind) bool { return k.Name == kind }):
		c.Kinds = append(c.Kinds, ControlKind{Name: kind})
	}
}

// askControl reads what there is of each kind, and, if there is something or asked is
// set, asks what the user may do.
func askControl(ctx context.Context, clients []*redis.Client, nodes []Node, prefix string, asked bool, c *Control) {
	found := len(c.Kinds) > 0 || len(c.Unknown) > 0
	for _, kind := range usualKinds {
		c.note(prefix, redisfacts.ControlKey(prefix, kind, "version"))
	}
	slices.SortFunc(c.Kinds, func(a, b ControlKind) int { return strings.Compare(a.Name, b.Name) })
	c.Err = "no primary answers"
	for i, client := range clients {
		if nodes[i].Err != "" || nodes[i].replica() {
			continue
		}
		err := client.Get(ctx, redisfacts.ControlKey(prefix, usualKinds[0], "version")).Err()
		if redis.HasErrorPrefix(err, "MOVED") {
			continue
		}
		c.Err, c.Addr, c.User = "", nodes[i].Addr, nodes[i].User
		for j := range c.Kinds {
			if err := lookControl(ctx, client, prefix, &c.Kinds[j]); err != nil {
				c.Err = err.Error()
				break
			}
		}
		c.Kinds = slices.DeleteFunc(c.Kinds, func(k ControlKind) bool { return k.Version == "" && k.Documents == 0 && len(k.Wrong) == 0 })
		if asked || found || len(c.Kinds) > 0 {
			rights := redisfacts.AskControl(ctx, client, prefix)
			c.Rights = &rights
		}
		return
	}
}

// lookControl reads what there is of a kind.
func lookControl(ctx context.Context, client *redis.Client, prefix string, k *ControlKind) error {
	key := func(part string) string { return redisfacts.ControlKey(prefix, k.Name, part) }
	ignored := func(part string, err error) error {
		switch {
		case err == nil, errors.Is(err, redis.Nil):
			return nil
		case redis.HasErrorPrefix(err, "WRONGTYPE"):
			k.Wrong = append(k.Wrong, key(part))
			return nil
		}
		return fmt.Errorf("%s: %w", key(part), err)
	}
	version, err := client.Get(ctx, key("version")).Result()
	if err := ignored("version", err); err != nil {
		return err
	}
	k.Version, _, _ = strings.Cut(version, " ") // without its random part
	size, err := client.Get(ctx, key("bytes")).Int64()
	k.Size = size
	if err := ignored("bytes", err); err != nil {
		return err
	}
	k.Documents, err = client.HLen(ctx, key("documents")).Result()
	return ignored("documents", err)
}
