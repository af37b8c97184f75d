#!/bin/sh
# Prints the size of a checkout of this repository, to compare it before and after a change.
#
#	scripts/measure.sh [DIR]
set -eu
cd "${1:-$(dirname "$0")/..}"

# files lists the files of the checkout whose names match a pattern. A deleted file is still listed.
files() {
	git ls-files --cached --others --exclude-standard --deduplicate |
		grep -E "$1" | while read -r path; do [ ! -f "$path" ] || echo "$path"; done
}

# lines counts the lines of the files whose names are read.
lines() { tr '\n' '\0' | xargs -0 cat | wc -l; }

code=$(files '\.go$' | grep -v '_test\.go$')
root=$(echo "$code" | grep -v /)

row() { printf '| %s | %d |\n' "$1" "$2"; }

# Each exported name begins a line of its documentation, or one of a struct or a group.
go doc -all . | awk '
	/^(func|type) / { names++ }
	/^(const|var) [A-Z]/ { values++ }
	/^(type .* struct|const|var) [({]$/ { group = $1 }
	/^[)}]/ { group = "" }
	group == "type" && /^\t[A-Z][A-Za-z0-9]*(, [A-Z][A-Za-z0-9]*)* / || group && group != "type" && /^\t[A-Z]/ {
		values++
		for (i = 1; $i ~ /,$/; i++) values++
	}
	END {
		printf "| root: exported functions, types and methods | %d |\n", names
		printf "| root: with constants, variables and fields | %d |\n", names + values
	}'
row 'root: files' "$(echo "$root" | wc -l)"
row 'root: lines' "$(echo "$root" | lines)"
row 'lines of go doc -all .' "$(go doc -all . | wc -l)"
row 'folders at the top' "$(files '^[^.][^/]*/' | cut -d/ -f1 | sort -u | wc -l)"
row 'modules' "$(files '(^|/)go\.mod$' | wc -l)"
row 'Go lines outside of tests' "$(echo "$code" | lines)"
row 'Go lines in tests' "$(files '_test\.go$' | lines)"
row 'words of Markdown without the changelog' "$(files '\.md$' | grep -v '^CHANGELOG\.md$' | tr '\n' '\0' | xargs -0 cat | wc -w)"
# gofmt ends a function by a brace at the beginning of a line.
echo "$code" | tr '\n' '\0' | xargs -0 awk '
	/^func .*[{]$/ { name = FILENAME ": " $0; begin = FNR }
	/^}/ && begin {
		length_ = FNR - begin + 1
		if (length_ > 60) long++
		if (length_ > most) { most = length_; longest = name }
		begin = 0
	}
	END {
		printf "| functions above 60 lines outside of tests | %d |\n", long
		printf "| lines of the largest, %s | %d |\n", longest, most
	}'
