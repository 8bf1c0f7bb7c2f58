#!/usr/bin/env python3
"""One script for the official `openai` package, run once at an engine and once through the gateway.

    openai_script.py --base http://HOST:PORT --model NAME --out RESULTS.json
                     [--embeddings-base URL] [--embeddings-model NAME] [--extra JSON] [--skip CASE,CASE]

Writes {"cases": {NAME: VALUE}, "headers": {NAME: {...}}}. A VALUE is what the package handed over, as plain JSON,
without the fields that no two answers share (OBJECT_FIELDS, and BYTE_PATTERNS for streams taken byte by byte); the
driver compares two such files. `headers` is kept apart: an engine and a gateway do not send the same ones.
"""
import argparse
import http.client
import json
import re
import sys
import urllib.parse

import openai

# Differ from one answer to the next of one engine: names drawn at random, clocks, and llama.cpp's stop-watch.
OBJECT_FIELDS = {
    "id", "created", "system_fingerprint", "timings", "_request_id", "created_at", "completed_at", "item_id",
}

# The same, in the raw bytes of a body or a stream.
BYTE_PATTERNS = [
    (re.compile(rb'"id":\s?"[^"]*"'), b'"id":"*"'),
    (re.compile(rb'"created":\s?\d+'), b'"created":0'),
    # What a slot has in its cache from before, and what is left to read then.
    (re.compile(rb'"(cache_read_input_tokens|input_tokens)":\s?\d+'), b'"\\1":0'),
    (re.compile(rb'"timings":\s?\{[^{}]*\}'), b'"timings":{}'),
]

# Said once a stream. An engine that is asked for usage says it in the usage event, else in the last one before the end.
ONCE_A_STREAM = re.compile(rb',?"(?:timings":\{\}|system_fingerprint":\s?"[^"]*")')

QUESTION = [{"role": "user", "content": "Why is the gateway slow?"}]
FIXED = {"max_tokens": 24, "temperature": 0, "seed": 1}
WITH_USAGE = {"include_usage": True}
TOOL = {
    "type": "function",
    "function": {
        "name": "price_of",
        "description": "Price of a model, in cents, größer als null",
        "parameters": {
            "type": "object",
            "properties": {"model": {"type": "string", "enum": ["a", "b"]}},
            "required": ["model"],
            "additionalProperties": False,
        },
    },
}
FORCED = {"type": "function", "function": {"name": "price_of"}}


def plain(value):
    """An object of the package as plain JSON, without the fields that differ by nature."""
    if hasattr(value, "model_dump"):
        value = value.model_dump(mode="json")
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items() if k not in OBJECT_FIELDS}
    if isinstance(value, list):
        return [plain(v) for v in value]
    return value


def same_bytes(body):
    for pattern, stand_in in BYTE_PATTERNS:
        body = pattern.sub(stand_in, body)
    return body


def refusal(call):
    """What the package raises: its class, the status, and the error as the server wrote it."""
    try:
        call()
    except openai.APIStatusError as error:
        return {"raised": type(error).__name__, "status": error.status_code, "error": plain(error.body)}
    return {"raised": None}


class Script:
    def __init__(self, args):
        self.model, self.extra = args.model, json.loads(args.extra)
        self.client = openai.OpenAI(base_url=args.base + "/v1", api_key="not-used", max_retries=0, timeout=120)
        embeddings_base = args.embeddings_base or args.base
        self.embedder = openai.OpenAI(base_url=embeddings_base + "/v1", api_key="not-used", max_retries=0, timeout=120)
        self.embeddings_model = args.embeddings_model or args.model
        self.address = urllib.parse.urlsplit(args.base).netloc
        self.headers = {}

    def chat(self, **more):
        asked = {"model": self.model, "messages": QUESTION, "extra_body": self.extra, **FIXED, **more}
        return self.client.chat.completions.create(**asked)

    def complete(self, **more):
        asked = {"model": self.model, "prompt": "The slow gateway routes", "extra_body": self.extra, **FIXED, **more}
        return self.client.completions.create(**asked)

    # Chat.

    def chat_whole(self):
        return plain(self.chat())

    def chat_stop(self):
        return plain(self.chat(stop=self.stop_word()))

    def chat_max_completion_tokens(self):
        return plain(self.chat(max_tokens=openai.NOT_GIVEN, max_completion_tokens=5))

    def chat_unicode(self):
        spoken = [{"role": "system", "content": "Sprich \"deutsch\"\n\\ und 中文 🚪\u2028"}, *QUESTION]
        return plain(self.chat(messages=spoken, user="jürgen", metadata={"model": "not-this-one"}))

    def chat_json_schema(self):
        schema = {"name": "pick", "schema": TOOL["function"]["parameters"]}
        return plain(self.chat(response_format={"type": "json_schema", "json_schema": schema}))

    def chat_streamed(self):
        return [plain(chunk) for chunk in self.chat(stream=True)]

    def chat_streamed_with_usage(self):
        chunks = [plain(chunk) for chunk in self.chat(stream=True, stream_options=WITH_USAGE)]
        assert chunks[-1]["usage"]["completion_tokens"] > 0, "the last chunk carries the usage that was asked for"
        return chunks

    def chat_by_helper(self):
        """The package's own accumulating helper, which is strict about the order of events."""
        with self.client.chat.completions.stream(
            model=self.model, messages=QUESTION, stop=self.stop_word(), extra_body=self.extra, **FIXED
        ) as stream:
            kinds = [event.type for event in stream]
            return {"kinds": kinds, "final": plain(stream.get_final_completion())}

    def stop_word(self):
        """A piece from the middle of the answer, so that the engine ends by itself."""
        whole = self.chat().choices[0].message.content
        return [whole[len(whole) // 2 :][:3]]

    # Tools.

    def tools_auto(self):
        return plain(self.chat(tools=[TOOL], tool_choice="auto"))

    def tools_auto_streamed(self):
        return [plain(chunk) for chunk in self.chat(tools=[TOOL], tool_choice="auto", stream=True)]

    def tools_forced(self):
        return plain(self.chat(tools=[TOOL], tool_choice=FORCED, max_tokens=64))

    def tools_forced_streamed(self):
        chunks = self.chat(tools=[TOOL], tool_choice=FORCED, max_tokens=64, stream=True, stream_options=WITH_USAGE)
        return [plain(chunk) for chunk in chunks]

    def tools_required(self):
        return plain(self.chat(tools=[TOOL], tool_choice="required", max_tokens=64))

    def tools_required_streamed(self):
        return [plain(chunk) for chunk in self.chat(tools=[TOOL], tool_choice="required", max_tokens=64, stream=True)]

    # Completions, embeddings, models.

    def completion(self):
        return plain(self.complete())

    def completion_two_prompts(self):
        return plain(self.complete(prompt=["The slow gateway", "A fast engine"]))

    def completion_streamed(self):
        return [plain(chunk) for chunk in self.complete(stream=True)]

    def completion_streamed_with_usage(self):
        return [plain(chunk) for chunk in self.complete(stream=True, stream_options=WITH_USAGE)]

    def embeddings(self):
        asked = {"model": self.embeddings_model, "input": ["the gateway", "the engine"], "encoding_format": "float"}
        return plain(self.embedder.embeddings.create(**asked))

    def embeddings_base64(self):
        return plain(self.embedder.embeddings.create(model=self.embeddings_model, input="the gateway"))

    def models(self):
        """Each server lists what it knows; both know the model."""
        return [{"id": m.id, "object": m.object} for m in self.client.models.list().data if m.id == self.model]

    # Responses, messages, tokens.

    def respond(self, **more):
        asked = {"model": self.model, "input": QUESTION[0]["content"], "max_output_tokens": 12, "temperature": 0}
        return self.client.responses.create(**asked, extra_body=self.extra, **more)

    def responses(self):
        return plain(self.respond())

    def responses_streamed(self):
        events = [plain(event) for event in self.respond(stream=True)]
        assert events[-1]["type"] in ("response.completed", "response.incomplete"), "the stream has its end"
        return events

    def messages(self):
        return self.raw("/v1/messages", "messages", {"messages": QUESTION})

    def messages_streamed(self):
        return self.raw("/v1/messages", "messages_streamed", {"messages": QUESTION, "stream": True})

    def tokenize(self):
        return self.raw("/tokenize", "tokenize", {"content": "the slow gateway", "prompt": "the slow gateway"})

    # Errors.

    def error_of_engine(self):
        """A prompt too long for the model: only the engine knows."""
        return refusal(lambda: self.chat(messages=[{"role": "user", "content": "river stone cloud " * 3000}]))

    def error_missing_messages(self):
        body = {"model": self.model, "messages": None}
        return refusal(lambda: self.client.post("/chat/completions", cast_to=object, body=body))

    def error_unknown_model(self):
        return refusal(lambda: self.chat(model="no-such-model"))

    def error_malformed(self):
        answer, body = self.post("/v1/chat/completions", b'{"model": "tiny", ')
        return {"status": answer.status, "error": plain(json.loads(body).get("error"))}

    # A client that leaves.

    def leaves(self):
        stream = self.chat(stream=True, max_tokens=1500)
        seen = []
        for chunk in stream:
            seen.append(plain(chunk))
            if len(seen) == 3:
                break
        stream.close()
        return {"seen": seen, "after": plain(self.chat(max_tokens=4))}

    # Byte by byte.

    def bytes_whole(self):
        return self.raw("/v1/chat/completions", "bytes_whole", {"messages": QUESTION})

    def bytes_streamed(self):
        return self.raw("/v1/chat/completions", "bytes_streamed", {"messages": QUESTION, "stream": True})

    def bytes_streamed_with_usage(self):
        asked = {"messages": QUESTION, "stream": True, "stream_options": WITH_USAGE}
        return self.raw("/v1/chat/completions", "bytes_streamed_with_usage", asked)

    def bytes_streamed_tools(self):
        asked = {"messages": QUESTION, "stream": True, "tools": [TOOL], "tool_choice": "required", "max_tokens": 64}
        return self.raw("/v1/chat/completions", "bytes_streamed_tools", asked)

    def bytes_completion_streamed(self):
        return self.raw("/v1/completions", "bytes_completion_streamed", {"prompt": "The slow gateway", "stream": True})

    def raw(self, path, name, asked):
        answer, received = self.post(path, json.dumps({"model": self.model, **FIXED, **self.extra, **asked}).encode())
        self.headers[name] = {key.lower(): value for key, value in answer.getheaders()}
        kind = self.headers[name].get("content-type", "")
        received = same_bytes(received)
        return {
            "status": answer.status,
            "type": kind,
            "bytes": received.decode("utf-8"),
            "bytes_without_extras": ONCE_A_STREAM.sub(b"", received).decode("utf-8"),
        }

    def post(self, path, body):
        """Sends bytes as they are; the answer's bytes come without their chunk framing and otherwise untouched."""
        connection = http.client.HTTPConnection(self.address, timeout=120)
        try:
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer, answer.read()
        finally:
            connection.close()


NOT_CASES = ("chat", "complete", "respond", "stop_word", "raw", "post")
CASES = [name for name in vars(Script) if not name.startswith("_") and name not in NOT_CASES]


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--base", required=True)
    ap.add_argument("--model", required=True)
    ap.add_argument("--out", required=True)
    ap.add_argument("--embeddings-base")
    ap.add_argument("--embeddings-model")
    ap.add_argument("--extra", default="{}", help="fields added to every body, as JSON")
    ap.add_argument("--skip", default="", help="cases this engine cannot answer")
    args = ap.parse_args()
    skipped = set(filter(None, args.skip.split(",")))
    if not skipped <= set(CASES):
        sys.exit(f"no such case: {', '.join(sorted(skipped - set(CASES)))}")
    script = Script(args)
    results = {}
    for name in CASES:
        if name in skipped:
            continue
        try:
            results[name] = getattr(script, name)()
        except Exception as error:  # What goes wrong is a result, and the driver says so by the case's name.
            results[name] = {"failed": f"{type(error).__name__}: {error}"}
    with open(args.out, "w", encoding="utf-8") as out:
        json.dump({"cases": results, "headers": script.headers}, out, ensure_ascii=False, indent=1)
    failed = [name for name, value in results.items() if isinstance(value, dict) and "failed" in value]
    for name in failed:
        print(f"{name}: {results[name]['failed']}", file=sys.stderr)
    print(f"{len(results)} cases, {len(failed)} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
