#!/bin/sh
# Runs a command in every module of go.work, and stops at the first failure.
set -eu
cd "$(dirname "$0")/.."

root=$PWD
modules=$(go list -m -f '{{.Dir}}')
printf '%s\n' "$modules" | while read -r module; do
	cd "$module"
	printf '\n== .%s: %s\n' "${module#"$root"}" "${1##*/} $(shift && echo "$*")"
	"$@" </dev/null
done
