#!/usr/bin/env bash
# Formats all C++ and Python; with --check changes nothing and fails where something would change.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=.venv/bin
clang=(-i)
ruff=()
if [ "${1:-}" = --check ]; then
  clang=(--dry-run -Werror)
  ruff=(--check)
fi
status=0
# Tracked and new files alike, deleted ones not.
git ls-files -co --exclude-standard '*.cc' '*.h' | while read -r f; do if [ -f "$f" ]; then echo "$f"; fi; done |
  xargs -r -d '\n' -n 16 -P "$(nproc)" "$bin/clang-format" "${clang[@]}" || status=1
"$bin/ruff" format -q "${ruff[@]}" . || status=1
exit $status
