package rules

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestComplete(t *testing.T) {
	for text, want := range map[string][]string{
		"":                               nil,
		"5/2s per ":                      nil,
		"5/2s per ip tok":                {"5/2s per ip token-bucket"},
		"5/2s per ip; 9/1h global hid":   {"5/2s per ip; 9/1h global hidden"},
		"5/2s per ip on-error ":          {"5/2s per ip on-error local", "5/2s per ip on-error allow", "5/2s per ip on-error refuse"},
		"5/2s per ip refuse re":          {"5/2s per ip refuse redirect"},
		"5/2s per ip plan pro 5 pla":     {"5/2s per ip plan pro 5 plan"},
		"5/2s per ip hidden hid":         nil,
		"5/2s per ip token-bucket burst": {"5/2s per ip token-bucket burst"},
	} {
		assert.Equal(t, want, Complete(text), text)
	}
	for _, text := range Complete("5/2s per ip ") {
		assert.True(t, strings.HasPrefix(text, "5/2s per ip "))
		assert.NotNil(t, attributeOf(strings.TrimPrefix(text, "5/2s per ip ")), text)
	}
	assert.Contains(t, Words(), "burst: how many units may come, or wait, at once\n")
}
