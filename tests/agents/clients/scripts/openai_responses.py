"""OpenAI SDK, responses: URL MODEL stream|plain TASK."""

import sys

from file_tools import DESCRIPTIONS, MAX_TURNS, SCHEMA, call
from openai import OpenAI

url, model, mode, task = sys.argv[1:]
client = OpenAI(base_url=url, max_retries=0)
tools = [
    {"type": "function", "name": name, "description": text, "parameters": SCHEMA, "strict": True}
    for name, text in DESCRIPTIONS.items()
]
items = [{"role": "user", "content": task}]
asked = {"model": model, "instructions": "You edit files.", "input": items, "tools": tools, "store": False}


def ask():
    if mode == "plain":
        return client.responses.create(**asked)
    with client.responses.stream(**asked) as stream:
        return stream.get_final_response()


for _ in range(MAX_TURNS):
    response = ask()
    items += [item.to_dict(exclude_none=True) for item in response.output]
    for item in items:
        item.pop("parsed_arguments", None)
    calls = [item for item in response.output if item.type == "function_call"]
    if not calls:
        print(response.output_text)
        break
    items += [
        {"type": "function_call_output", "call_id": item.call_id, "output": call(item.name, item.arguments)}
        for item in calls
    ]
else:
    sys.exit("no end")
