from __future__ import annotations

import pytest

from gateway.dialects.responses.freeform import FreeformInput, freeform_arguments


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"input": "a\\nb"}', "a\nb"),
        ('{"input": "raw\nbreak"}', "raw\nbreak"),
        ('{"input": "cut \\', "cut "),
        ('{"input": "cut', "cut"),
        ('{"input": "x", "more": 1}', "x"),
        ('{"input": "\\ud83d\\ude00"}', "\N{GRINNING FACE}"),
        ('{"input": "\\ud83d!"}', "\ufffd!"),
        ('{"input": "\\ud83d"}', "\ufffd"),
        ('{"input": "\\ude00"}', "\ufffd"),
        ('{"input": "\\ud83d\\ud83d\\ude00"}', "\ufffd\N{GRINNING FACE}"),
        ('{"input": "\\ud83d\\n"}', "\ufffd\n"),
        ('{"input": "\\x41 \\u00zz"}', "\\x41 \\u00zz"),
        ('{"patch": "x"}', '{"patch": "x"}'),
        ('{"in put": "x"}', '{"in put": "x"}'),
        ('{"input": 7}', '{"input": 7}'),
        ("*** Begin Patch", "*** Begin Patch"),
        ('{"inp', ""),
        ("", ""),
    ],
)
def test_the_input_of_odd_arguments(arguments: str, expected: str) -> None:
    machine = FreeformInput()
    assert machine.feed(arguments) + machine.finish() == expected


def test_input_leaves_as_soon_as_it_is_known() -> None:
    machine = FreeformInput()
    assert [machine.feed(piece) for piece in ('{"inp', 'ut": "a', "b\\", "u00", 'e9c"', "}")] == [
        "",
        "a",
        "b",
        "",
        "éc",
        "",
    ]


def test_arguments_are_spelt_as_vllm_spells_them() -> None:
    assert freeform_arguments('é "\n') == '{"input": "é \\"\\n"}'
