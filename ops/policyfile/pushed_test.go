package policyfile_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/ops/control"
	"github.com/routelimit/limit/ops/policyfile"
)

func TestPushedFiles(t *testing.T) {
	client := redistest.Real(t)
	ctl := control.New(client, nil)
	files := must.Get(policyfile.Pushed(t.Context(), ctl))(t)
	assert.Empty(t, files)

	f := must.Get(policyfile.Parse("api.yaml", []byte("version: 1\npolicies:\n  login: {routes: [POST /login], rules: 5/1m per ip}\n")))(t)
	require.NoError(t, policyfile.Push(t.Context(), ctl, "", f, time.Hour, "ann"))
	require.NoError(t, policyfile.Push(t.Context(), ctl, "shop", f, 0, "ann"))
	require.NoError(t, ctl.Put(t.Context(), "policy", "newer", []byte("x.yaml\nversion: 2\npolicies: none\n"), 0, "bob"))
	files, err := policyfile.Pushed(t.Context(), ctl)
	assert.ErrorContains(t, err, `the file that is pushed as "newer": x.yaml:1:`)
	require.Len(t, files, 2)
	assert.Equal(t, "login", files["policies"].Policies()[0].Name)
	assert.Equal(t, "login", files["shop"].Policies()[0].Name)

	client.Close()
	_, err = policyfile.Pushed(t.Context(), ctl)
	assert.Error(t, err)
}
