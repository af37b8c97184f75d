// Package must spares tests a line for each call that has to succeed.
package must

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Get returns a function that ends the test if a call has failed, and returns its value:
//
//	d := must.Get(policy.Take(ctx, request))(t)
//
// It takes a message and its arguments as [require.NoError] does.
func Get[T any](value T, err error) func(t testing.TB, about ...any) T {
	return func(t testing.TB, about ...any) T {
		t.Helper()
		require.NoError(t, err, about...)
		return value
	}
}
