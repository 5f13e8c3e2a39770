"""Anthropic SDK, messages: URL MODEL stream|plain TASK."""

import sys

from anthropic import Anthropic
from file_tools import DESCRIPTIONS, MAX_TURNS, SCHEMA, call

url, model, mode, task = sys.argv[1:]
client = Anthropic(base_url=url, max_retries=0)
tools = [{"name": name, "description": text, "input_schema": SCHEMA} for name, text in DESCRIPTIONS.items()]
messages = [{"role": "user", "content": task}]
asked = {
    "model": model,
    "max_tokens": 4096,
    "system": "You edit files.",
    "messages": messages,
    "tools": tools,
}


def ask():
    if mode == "plain":
        return client.messages.create(**asked)
    with client.messages.stream(**asked) as stream:
        return stream.get_final_message()


for _ in range(MAX_TURNS):
    message = ask()
    messages.append({"role": "assistant", "content": [block.to_dict() for block in message.content]})
    uses = [block for block in message.content if block.type == "tool_use"]
    if not uses:
        print("".join(block.text for block in message.content if block.type == "text"))
        break
    results = [
        {"type": "tool_result", "tool_use_id": use.id, "content": call(use.name, use.input)} for use in uses
    ]
    messages.append({"role": "user", "content": results})
else:
    sys.exit("no end")
