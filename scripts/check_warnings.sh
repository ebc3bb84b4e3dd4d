#!/usr/bin/env bash
# Builds the core, the command and the C tests with warnings as errors: under gcc for this machine's processor and, if
# clang exists, under clang for any processor of this architecture, which shows that code for wide vectors stays in its
# place. clang has its warnings before it optimizes, so its build doesn't optimize, has nothing for a debugger and links
# no program.
#
# The argument is the folder of cmake and ninja.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$1

for compiler in gcc clang; do
  options=(-DCMAKE_BUILD_TYPE=Release -DHEADRACE_NATIVE=ON)
  if [ "$compiler" = clang ]; then
    options=(-DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS_DEBUG=-O0 -DHEADRACE_NATIVE=OFF)
    options+=("-DCMAKE_C_LINK_EXECUTABLE=<CMAKE_COMMAND> -E touch <TARGET>")
  fi
  if ! command -v "$compiler" >/dev/null; then
    echo "check_warnings: no $compiler on this machine, not checked"
    continue
  fi
  "$bin/cmake" -G Ninja -DCMAKE_MAKE_PROGRAM="$bin/ninja" -S . -B "build/check-$compiler" --log-level=NOTICE \
    -DCMAKE_C_COMPILER="$compiler" -DHEADRACE_WERROR=ON "${options[@]}"
  "$bin/cmake" --build "build/check-$compiler"
  echo "check_warnings: no warnings under $compiler"
done
