#!/usr/bin/env bash
# Installs an official client (`openai` or `anthropic`) from PyPI, once, under $LLMGW_E2E_DIR, and prints the Python
# that has it.
#
# Licences: the table of README.md. What they need comes with them, by pip.
set -euo pipefail
: "${LLMGW_E2E_DIR:?set LLMGW_E2E_DIR to a folder for what the suite installs}"
name=${1:?which client}
case $name in
openai) version=${OPENAI_VERSION:-3.57.0} ;;
anthropic) version=${ANTHROPIC_VERSION:-2.14.0} ;;
*) echo "no such client: $name" >&2; exit 2 ;;
esac
venv=$LLMGW_E2E_DIR/$name-$version
if [ ! -e "$venv/ok" ]; then
  rm -rf "$venv"
  mkdir -p "$LLMGW_E2E_DIR"
  "${PYTHON:-python3}" -m venv "$venv"
  "$venv/bin/pip" install -q --only-binary :all: "$name==$version" >&2
  touch "$venv/ok"
fi
echo "$venv/bin/python"
