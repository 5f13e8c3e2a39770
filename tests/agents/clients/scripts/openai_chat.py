"""OpenAI SDK, chat completions: URL MODEL stream|plain TASK."""

import sys

from file_tools import DESCRIPTIONS, MAX_TURNS, SCHEMA, call
from openai import OpenAI

url, model, mode, task = sys.argv[1:]
client = OpenAI(base_url=url, max_retries=0)
tools = [
    {"type": "function", "function": {"name": name, "description": text, "parameters": SCHEMA}}
    for name, text in DESCRIPTIONS.items()
]
messages = [{"role": "system", "content": "You edit files."}, {"role": "user", "content": task}]


def ask():
    if mode == "plain":
        return client.chat.completions.create(model=model, messages=messages, tools=tools).choices[0].message
    with client.chat.completions.stream(model=model, messages=messages, tools=tools) as stream:
        return stream.get_final_completion().choices[0].message


for _ in range(MAX_TURNS):
    message = ask()
    messages.append(message.to_dict(exclude_none=True) | {"content": message.content})
    for message_call in messages[-1].get("tool_calls", []):
        message_call["function"].pop("parsed_arguments", None)
    if not message.tool_calls:
        print(message.content)
        break
    for tool in message.tool_calls:
        result = call(tool.function.name, tool.function.arguments)
        messages.append({"role": "tool", "tool_call_id": tool.id, "content": result})
else:
    sys.exit("no end")
