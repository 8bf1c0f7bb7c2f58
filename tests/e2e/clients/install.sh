#!/usr/bin/env bash
# Installs the official `openai` package from PyPI, once, under $LLMGW_E2E_DIR, and prints the Python that has it.
#
# openai is Apache-2.0. What it needs comes with it, by pip.
set -euo pipefail
: "${LLMGW_E2E_DIR:?set LLMGW_E2E_DIR to a folder for what the suite installs}"
version=${OPENAI_VERSION:-3.57.0}
venv=$LLMGW_E2E_DIR/openai-$version
if [ ! -e "$venv/ok" ]; then
  rm -rf "$venv"
  mkdir -p "$LLMGW_E2E_DIR"
  "${PYTHON:-python3}" -m venv "$venv"
  "$venv/bin/pip" install -q --only-binary :all: "openai==$version" >&2
  touch "$venv/ok"
fi
echo "$venv/bin/python"
