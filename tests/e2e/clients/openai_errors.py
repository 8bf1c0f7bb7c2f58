#!/usr/bin/env python3
"""What the official `openai` package makes of a refusal, as one line of JSON.

    openai_errors.py --base http://HOST:PORT --key KEY --model NAME [--stream] [--max-tokens N] [--replica NAME]

Prints {"class": ..., "status": ..., "code": ..., "type": ..., "retry_after": ...}; "class" is null where the call went
well. The package retries nothing here.
"""
import argparse
import json

import openai

args = argparse.ArgumentParser()
args.add_argument("--base", required=True)
args.add_argument("--key", required=True)
args.add_argument("--model", required=True)
args.add_argument("--stream", action="store_true")
args.add_argument("--max-tokens", type=int, default=8)
args.add_argument("--replica")
args = args.parse_args()

client = openai.OpenAI(base_url=args.base + "/v1", api_key=args.key, max_retries=0, timeout=30)
told = {"class": None}
headers = {"x-llmgw-replica": args.replica} if args.replica else {}
try:
    answer = client.chat.completions.create(
        model=args.model,
        messages=[{"role": "user", "content": "hello"}],
        max_tokens=args.max_tokens,
        stream=args.stream,
        extra_headers=headers,
    )
    if args.stream:
        for _ in answer:
            pass
except openai.APIStatusError as error:
    told = {
        "class": type(error).__name__,
        "status": error.status_code,
        "code": error.code,
        "type": error.type,
        "message": error.message,
        "retry_after": error.response.headers.get("retry-after"),
        "request_id": error.request_id,
    }
print(json.dumps(told))
