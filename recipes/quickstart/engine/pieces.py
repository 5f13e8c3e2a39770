"""Words and marks that are one token each. None holds a digit or an arithmetic sign."""

from __future__ import annotations

_WORDS = """
 the a an and of to in is are it that with for on at by as be was has have how many more now there they them
 all one each its this from you your can may will not no or so what which when who end answer then than
 Step Done me let think once did work times week later friends among equally shared into evenly splits bags
 share neighbour adds finds buys gives away loses sells market apples marbles stickers pencils shells coins
 cards buttons problem solve step calculator expression number result function functions call calls between
 marks tool arguments arithmetic example evaluate parentheses only word problems
"""
_NAMES = "Ava Ben Chloe Dan Ella Finn Grace Hugo Iris Jack Kira Leo"
_WHOLE = (
    *(
        "system\n",
        "user\n",
        "assistant\n",
        "# Tools\n\n",
        "You are a helpful assistant.",
        "<tools>\n",
        "\n</tools>\n",
    ),
    *("Solve ", "End ", "The answer is ", "How many ", "A ", "Step ", "Evaluate ", "You may call these "),
    *('{"', '"}', '"}}', '"}}\n', '": "', '", "', '": {"', '"}, "', '": ["', '"]', '"]}', '"]}}}'),
    *('\n{"name": "', '", "arguments": {"', '{"type": "', '"type": "', "string", "object", "properties"),
    *(
        "required",
        "description",
        "parameters",
        "name",
        ": add ",
        ": subtract ",
        ": multiply by ",
        ": divide by ",
    ),
    *(
        "That did not work, so once more",
        "Wait, let me check.\n",
        "Let me think. ",
        "Done. ",
        ".\n",
        ". ",
        ", ",
    ),
    *("I can only solve arithmetic word problems.",),
)

PIECES: tuple[str, ...] = tuple(
    dict.fromkeys((*_WHOLE, *(f" {word}" for word in _WORDS.split()), *_WORDS.split(), *_NAMES.split()))
)
