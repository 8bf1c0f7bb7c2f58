#!/usr/bin/env bash
# Streams one chat with curl and prints each event's data on a line of its own, as it arrives.
#
#   stream.sh URL/v1/chat/completions BODY-AS-JSON
#
# The last line is `end`, or `error: ...` when the stream broke.
set -uo pipefail
curl --silent --show-error --fail-with-body --no-buffer --max-time 60 \
  --header 'Content-Type: application/json' --data-binary "$2" "$1" 2>&1 |
  while IFS= read -r line; do
    case $line in
      'data: '*) printf '%s\n' "${line#data: }" ;;
      '') ;;
      *) printf 'error: %s\n' "$line" ;;
    esac
  done
if [ "${PIPESTATUS[0]}" = 0 ]; then echo end; else echo "error: curl failed"; exit 1; fi
