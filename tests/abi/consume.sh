#!/usr/bin/env bash
# Builds a project outside ours against an installed Tilewise and runs what it built.
# Usage: consume.sh cmake|pkgconfig <install prefix> <project folder> <build folder>
set -euo pipefail
way=$1 prefix=$2 project=$3 build=$4
rm -rf "$build"
mkdir -p "$build"

case $way in
  cmake)
    cmake -S "$project" -B "$build" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Release
    cmake --build "$build"
    ;;
  pkgconfig)
    pc=$(dirname "$(find "$prefix" -name tilewise.pc)")
    read -ra flags <<<"$(PKG_CONFIG_PATH=$pc pkg-config --cflags --libs tilewise)"
    library_dir=$(PKG_CONFIG_PATH=$pc pkg-config --variable=libdir tilewise)
    for source in "$project"/*.c; do
      name=$(basename "$source" .c)
      "${CC:-cc}" -std=c99 -o "$build/$name" "$source" "${flags[@]}" "-Wl,-rpath,$library_dir" -lm
    done
    ;;
esac

ran=0
while IFS= read -r program; do
  "$program"
  ran=$((ran + 1))
done < <(find "$build" -maxdepth 1 -type f -executable | sort)
echo "$ran programs ran"
[ "$ran" -gt 0 ]
