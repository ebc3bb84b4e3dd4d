#!/usr/bin/env bash
# Compares every C and C++ source with the output of clang-format; --fix rewrites them. Generated headers are left to
# their generators. Without clang-format it prints a note and passes.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v clang-format >/dev/null; then
  echo "check_format: no clang-format on this machine, formatting not checked"
  exit 0
fi
mapfile -t files < <(git ls-files --cached --others --exclude-standard -- '*.c' '*.h' '*.cpp' | while read -r file; do
  if [ -f "$file" ] && ! head -n 3 "$file" | grep -qi 'generated'; then echo "$file"; fi
done)
if [ "${1:-}" = --fix ]; then
  clang-format -i "${files[@]}"
else
  clang-format --dry-run -Werror "${files[@]}"
  echo "check_format: ${#files[@]} files are formatted"
fi
