#!/bin/sh
# Runs a Python tool with $NIBBLE_PYTHON; exit code 77 tells ctest that there is none.
if [ -z "$NIBBLE_PYTHON" ] || [ ! -x "$NIBBLE_PYTHON" ]; then
  echo "skipped: NIBBLE_PYTHON names no Python with the packages of tools/requirements.txt"
  [ -n "$NIBBLE_REQUIRE_SHARED" ] && exit 1
  exit 77
fi
exec "$NIBBLE_PYTHON" "$@"
