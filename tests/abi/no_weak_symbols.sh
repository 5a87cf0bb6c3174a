#!/usr/bin/env bash
# Units that are compiled for a CPU which need not be there must not define weak (inline) functions:
# the linker keeps one copy for the whole library, and if it kept theirs, code that runs everywhere
# would carry their instructions.
# Usage: no_weak_symbols.sh <folder of object files>
set -euo pipefail
shopt -s nullglob
objects=("$1"/*.o)
[ ${#objects[@]} -gt 0 ] || { echo "no object files in $1"; exit 1; }
if weak=$(nm -C --defined-only "${objects[@]}" | grep -E ' [WV] '); then
  printf 'weak definitions:\n%s\n' "$weak"
  exit 1
fi
