#!/usr/bin/env bash
# Units that are compiled for a CPU which need not be there must not define weak (inline) functions:
# the linker keeps one copy for the whole library, and if it kept theirs, code that runs everywhere
# would carry their instructions.
# Usage: no_weak_symbols.sh <object file>...
set -euo pipefail
[ $# -gt 0 ] || { echo "no object files given"; exit 1; }
symbols=$(nm -C --defined-only "$@")
if weak=$(grep -E ' [WV] ' <<<"$symbols"); then
  printf 'weak definitions:\n%s\n' "$weak"
  exit 1
fi
