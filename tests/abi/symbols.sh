#!/usr/bin/env bash
# Compares what the shared library exports with the stored list: a symbol that comes or goes is a
# change of the ABI and belongs in the same commit as a change of symbols.txt.
# Usage: symbols.sh <libtilewise.so> <symbols.txt>
set -euo pipefail
library=$1
expected=$2

exported=$(nm -D --defined-only "$library" | awk '$2 != "A" {sub(/@.*/, "", $3); print $3}' | LC_ALL=C sort)
if others=$(grep -v '^tw_' <<<"$exported"); then
  printf 'exported, but not tw_*:\n%s\n' "$others"
  exit 1
fi
diff -u --label symbols.txt --label "$(basename "$library")" "$expected" <(printf '%s\n' "$exported")
