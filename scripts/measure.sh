#!/bin/sh
# Prints the size of a checkout of this repository, to compare it before and after a change.
set -eu
cd "${1:-$(dirname "$0")/..}"

files() { git ls-files --cached --others --exclude-standard --deduplicate "$@"; }
lines() { xargs -r cat | wc -l; }
row() { printf '| %s | %d |\n' "$@"; }

row 'exported functions, types and methods of the package at the top' "$(go doc -all . | grep -c '^func \|^type ')"
row 'lines of go doc -all .' "$(go doc -all . | wc -l)"
row 'Go files of the package at the top' "$(files ':(glob)*.go' | grep -vc '_test\.go$')"
row 'folders at the top' "$(files | grep / | grep -v '^\.' | cut -d/ -f1 | sort -u | wc -l)"
row modules "$(files '*go.mod' | wc -l)"
row 'Go lines outside of tests' "$(files '*.go' | grep -v '_test\.go$' | lines)"
row 'Go lines in tests' "$(files '*_test.go' | lines)"
row 'words of Markdown without the changelog' "$(files '*.md' | grep -vx CHANGELOG.md | xargs -r cat | wc -w)"
