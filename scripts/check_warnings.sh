#!/usr/bin/env bash
# Builds the core, the command and the C tests with warnings as errors, under gcc and, where it exists, clang.
# Takes the folder that holds cmake and ninja.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$1

for compiler in gcc clang; do
  if ! command -v "$compiler" >/dev/null; then
    echo "check_warnings: no $compiler on this machine, not checked"
    continue
  fi
  "$bin/cmake" -G Ninja -DCMAKE_MAKE_PROGRAM="$bin/ninja" -S . -B "build/check-$compiler" --log-level=NOTICE \
    -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_COMPILER="$compiler" -DHEADRACE_WERROR=ON
  "$bin/cmake" --build "build/check-$compiler"
  echo "check_warnings: no warnings under $compiler"
done
