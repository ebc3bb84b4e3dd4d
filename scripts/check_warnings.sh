#!/usr/bin/env bash
# Builds the core, the command and the C tests with warnings as errors: under gcc for this machine's processor and, if
# clang exists, under clang for any processor of this architecture, which shows that code for wide vectors stays in its
# place. The argument is the folder of cmake and ninja.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$1

for compiler in gcc clang; do
  native=$([ "$compiler" = gcc ] && echo ON || echo OFF)
  if ! command -v "$compiler" >/dev/null; then
    echo "check_warnings: no $compiler on this machine, not checked"
    continue
  fi
  "$bin/cmake" -G Ninja -DCMAKE_MAKE_PROGRAM="$bin/ninja" -S . -B "build/check-$compiler" --log-level=NOTICE \
    -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_COMPILER="$compiler" -DHEADRACE_WERROR=ON \
    -DHEADRACE_NATIVE="$native"
  "$bin/cmake" --build "build/check-$compiler"
  echo "check_warnings: no warnings under $compiler"
done
