package policyfile

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"go.yaml.in/yaml/v4"
)

// TestPanicOfAParser lets a parser panic, as that of another library might.
func TestPanicOfAParser(t *testing.T) {
	d := decoder{source: newSource("p.yaml", "version: 1\n")}
	assert.Nil(t, d.guarded(func() *yaml.Node { panic("index out of range") }))
	assert.ErrorContains(t, d.err(), "p.yaml:1:1: the file cannot be parsed (index out of range): simplify it")
}
