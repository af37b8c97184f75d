package redisstore

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash"
	"slices"
	"sync"

	"github.com/routelimit/limit/core"
)

const (
	minSecret = 16 // bytes
	hashSize  = 16 // bytes of a hash that are kept
)

// A keyHasher replaces the keys of charges by hashes before they leave the process, as names of
// Redis keys or in errors. A nil one leaves the keys as they are.
//
// The hash is HMAC-SHA-256 (RFC 2104) of the policy, the rule and the key, cut to 128 bits: the
// names of two rules do not show which keys belong to the same client. The empty key stays empty.
// Variants of a rule have the same hashes.
type keyHasher struct{ pool sync.Pool }

// newKeyHasher returns nil for a nil secret. It panics on an empty one, which is
// most likely a variable that is not set.
func newKeyHasher(secret []byte) *keyHasher {
	if secret == nil {
		return nil
	}
	if len(secret) < minSecret {
		panic(fmt.Sprintf("redisstore: Secret has %d bytes: write at least %d random ones, such as the output of `openssl rand -hex 32`",
			len(secret), minSecret))
	}
	secret = slices.Clone(secret)
	return &keyHasher{sync.Pool{New: func() any { return &hashState{mac: hmac.New(sha256.New, secret)} }}}
}

type hashState struct {
	mac  hash.Hash
	text []byte
	sum  [sha256.Size]byte
	out  [22]byte // hashSize bytes in base64
}

// hash returns the hash of a key, in characters that a Redis key holds unescaped.
func (h *keyHasher) hash(policy, rule, key string) string {
	if h == nil || key == "" {
		return key
	}
	state := h.pool.Get().(*hashState)
	defer h.pool.Put(state)
	state.text = binary.AppendUvarint(state.text[:0], uint64(len(policy)))
	state.text = append(state.text, policy...)
	state.text = binary.AppendUvarint(state.text, uint64(len(rule)))
	state.text = append(state.text, rule...)
	state.text = append(state.text, key...)
	state.mac.Reset()
	state.mac.Write(state.text)
	clear(state.text) // the pool must not keep the key
	sum := state.mac.Sum(state.sum[:0])
	base64.RawURLEncoding.Encode(state.out[:], sum[:hashSize])
	return string(state.out[:])
}

// id returns the ID of a charge, so hashed that it does not show which value is behind it.
func (h *keyHasher) id(c *core.Charge) uint64 {
	if c.ID == 0 || c.Quota.Algorithm != core.Distinct {
		return c.ID
	}
	var sum [hashSize]byte
	hash := h.hash(c.Policy, c.Rule, string(binary.BigEndian.AppendUint64(nil, c.ID)))
	_, _ = base64.RawURLEncoding.Decode(sum[:], []byte(hash))
	return max(1, binary.BigEndian.Uint64(sum[:])) // 0 is no value
}

// replace replaces the keys and values of charges in place.
func (h *keyHasher) replace(charges []core.Charge) {
	for i := range charges {
		h.replaceOne(&charges[i])
	}
}

func (h *keyHasher) replaceOne(c *core.Charge) {
	if h != nil {
		c.ID, c.Key = h.id(c), h.hash(c.Policy, c.Rule, c.Key)
	}
}
