package redisclient

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	o, err := Parse("rediss://app:secret@db:6380/2", false)
	require.NoError(t, err)
	assert.Equal(t, []any{"db:6380", "app", "secret", 2, true}, []any{o.Addr, o.Username, o.Password, o.DB, o.TLSConfig != nil})
	o, err = Parse("redis://db:7000?addr=db:7001", true)
	require.NoError(t, err)
	assert.Equal(t, "db:7000", o.Addr)
}

// TestErrors checks that an error says what to write, and does not show the password.
func TestErrors(t *testing.T) {
	for _, text := range []string{"", "redis://app:secret@:port", "app:secret@db", "foo", "http://app:secret@db", "redis://app:secret@db/x"} {
		for _, cluster := range []bool{false, true} {
			for _, open := range []func() error{
				func() error { _, err := Parse(text, cluster); return err },
				func() error { _, err := Open(text, cluster); return err },
			} {
				err := open()
				if cluster && text == "redis://app:secret@db/x" {
					continue // a Cluster has no databases
				}
				require.Error(t, err, text)
				assert.Contains(t, err.Error(), "write --redis ")
				assert.NotContains(t, err.Error(), ": :")
				assert.NotContains(t, err.Error(), "secret")
			}
		}
	}
}
