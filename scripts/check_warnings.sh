#!/usr/bin/env bash
# Builds the core, the command and the C tests with warnings as errors: under gcc for this machine's processor and, if
# clang exists, under clang for any processor of this architecture, which shows that code for wide vectors stays in its
# place. clang has its warnings before it optimizes, so its build doesn't.
#
# The argument is the folder of cmake and ninja.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$1

for compiler in gcc clang; do
  native=ON
  type=Release
  if [ "$compiler" = clang ]; then
    native=OFF
    type=Debug
  fi
  if ! command -v "$compiler" >/dev/null; then
    echo "check_warnings: no $compiler on this machine, not checked"
    continue
  fi
  "$bin/cmake" -G Ninja -DCMAKE_MAKE_PROGRAM="$bin/ninja" -S . -B "build/check-$compiler" --log-level=NOTICE \
    -DCMAKE_BUILD_TYPE="$type" -DCMAKE_C_COMPILER="$compiler" -DHEADRACE_WERROR=ON \
    -DHEADRACE_NATIVE="$native"
  "$bin/cmake" --build "build/check-$compiler"
  echo "check_warnings: no warnings under $compiler"
done
