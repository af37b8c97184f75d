#!/bin/sh
# Runs each fuzz test of every module for a while, or so many times: scripts/fuzz.sh 30s,
# scripts/fuzz.sh 1000000x
set -eu
cd "$(dirname "$0")/.."

duration=${1:-10s}
modules=$(go list -m -f '{{.Dir}}')
printf '%s\n' "$modules" | while read -r module; do
	cd "$module"
	go list ./... | while read -r package; do
		go test -list '^Fuzz' "$package" </dev/null | grep '^Fuzz' | while read -r fuzz; do
			printf '\n== %s %s\n' "$package" "$fuzz"
			go test -run '^$' -fuzz "^$fuzz\$" -fuzztime "$duration" -fuzzminimizetime 100x "$package" </dev/null
		done
	done
done
