#!/usr/bin/env python3
"""One script for the official `anthropic` package, run once at an engine and once through the gateway.

    anthropic_script.py --base http://HOST:PORT --model NAME --out RESULTS.json [--extra JSON] [--skip CASE,CASE]

Writes {"cases": {NAME: VALUE}, "headers": {}} as `openai_script.py` does.
"""
import argparse
import json
import sys

import anthropic

# Differ from one answer to the next of one engine.
OBJECT_FIELDS = {"id", "_request_id", "request_id", "timings"}

QUESTION = [{"role": "user", "content": "Why is the gateway slow?"}]
ASKED = {"messages": QUESTION, "max_tokens": 24}
# The package names no temperature; engines take it.
GREEDY = {"temperature": 0}


def plain(value):
    """An object of the package as plain JSON, without the fields that differ by nature."""
    if hasattr(value, "model_dump"):
        value = value.model_dump(mode="json")
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items() if k not in OBJECT_FIELDS}
    if isinstance(value, list):
        return [plain(v) for v in value]
    return value


class Script:
    def __init__(self, args):
        self.client = anthropic.Anthropic(base_url=args.base, api_key="not-used", max_retries=0, timeout=120)
        self.asked = {"model": args.model, "extra_body": {**GREEDY, **json.loads(args.extra)}, **ASKED}

    def messages_whole(self):
        answer = self.client.messages.create(**self.asked)
        assert answer.type == "message" and answer.usage.output_tokens > 0, "an answer with its usage"
        return plain(answer)

    def messages_system(self):
        return plain(self.client.messages.create(**self.asked, system="Sprich \"deutsch\"\n\\ und 中文 🚪"))

    def messages_streamed(self):
        return [plain(event) for event in self.client.messages.create(**self.asked, stream=True)]

    def messages_by_helper(self):
        """The package's own accumulating helper, which is strict about the order of events."""
        with self.client.messages.stream(**self.asked) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        assert final.content[0].text == text and final.stop_reason, "the stream came to its end"
        return plain(final)

    def count_tokens(self):
        counted = self.client.messages.count_tokens(model=self.asked["model"], messages=QUESTION)
        assert counted.input_tokens > 0, "tokens are counted"
        return plain(counted)

    def error_unknown_model(self):
        try:
            self.client.messages.create(**{**self.asked, "model": "no-such-model"})
        except anthropic.APIStatusError as error:
            return {"raised": type(error).__name__, "status": error.status_code, "body": plain(error.body)}
        return {"raised": None}


CASES = [name for name in vars(Script) if not name.startswith("_")]


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--base", required=True)
    ap.add_argument("--model", required=True)
    ap.add_argument("--out", required=True)
    ap.add_argument("--extra", default="{}", help="fields added to every body of a message, as JSON")
    ap.add_argument("--skip", default="", help="cases this engine cannot answer")
    args = ap.parse_args()
    script = Script(args)
    results = {}
    for name in (case for case in CASES if case not in args.skip.split(",")):
        try:
            results[name] = getattr(script, name)()
        except Exception as error:  # What goes wrong is a result, and the driver says so by the case's name.
            results[name] = {"failed": f"{type(error).__name__}: {error}"}
    with open(args.out, "w", encoding="utf-8") as out:
        json.dump({"cases": results, "headers": {}}, out, ensure_ascii=False, indent=1)
    failed = [name for name, value in results.items() if isinstance(value, dict) and "failed" in value]
    for name in failed:
        print(f"{name}: {results[name]['failed']}", file=sys.stderr)
    print(f"{len(results)} cases, {len(failed)} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
