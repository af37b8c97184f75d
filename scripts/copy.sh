#!/bin/sh
# Copies the files of this tree, with what is not committed yet, to a new git
# repository of one commit: scripts/copy.sh DIR
set -eu
cd "$(dirname "$0")/.."

dir=$1
mkdir -p "$dir"
git -c safe.directory="$PWD" ls-files --cached --others --exclude-standard | while IFS= read -r file; do
	[ ! -f "$file" ] || printf '%s\n' "$file" # a deleted file is still listed
done | tar -cf - -T - | tar -xf - -C "$dir"

cd "$dir"
git init -q
git config user.name copy
git config user.email copy@localhost
git config gc.auto 0 # a background process would outlive the copy
git add -A
git commit -q -m 'copy of the tree'
