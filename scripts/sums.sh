#!/bin/sh
# Has go read every checksum that go build, go vet, go test, go list and go mod
# need in a module of go.work, without building anything.
set -eu
cd "$(dirname "$0")/.."

for command in 'list -m all' 'list -deps -test ./...' 'mod graph'; do
	# shellcheck disable=SC2086 # several words
	scripts/each.sh go $command >/dev/null
done
