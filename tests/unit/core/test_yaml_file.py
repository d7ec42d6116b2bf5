"""Text and YAML of strangers: read strictly, and refused with the line that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from harness.core.yaml_file import NotText, as_text, fault_of_yaml, parse_yaml, read_source, read_yaml


def written(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "file.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_byte_order_mark_is_removed_once() -> None:
    assert as_text(b"\xef\xbb\xbfa") == "a"
    assert as_text(b"\xef\xbb\xbf\xef\xbb\xbfa") == "\ufeffa"


@pytest.mark.parametrize(
    ("data", "line", "byte", "words"),
    [
        (b"a\nb\xffc", 2, 3, "byte 3 (0xff)"),
        (b"\xef\xbb\xbfa\n\xffb", 2, 5, "byte 5 (0xff)"),
        ("für".encode("utf-16"), 1, 0, "looks like UTF-16"),
    ],
)
def test_what_is_not_utf8_is_located(data: bytes, line: int, byte: int, words: str) -> None:
    with pytest.raises(NotText) as caught:
        as_text(data)
    assert (caught.value.line, caught.value.byte) == (line, byte)
    assert words in str(caught.value)


def test_a_yaml_file_is_read(tmp_path: Path) -> None:
    assert read_yaml(written(tmp_path, "a: 1\nb: [x, 2.5, true, null]\n")) == {"a": 1, "b": ["x", 2.5, True, None]}
    assert read_source(written(tmp_path, "a: µ\n")) == "a: µ\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\nb: 2\na: 3\n", "duplicate key `a`"),
        ("a: {b: 1, b: 2}\n", "duplicate key `b`"),
        ("[1, 2]: x\n", "a key must be a word"),
        ("a: !!python/object/apply:os.system [ls]\n", "python/object/apply"),
        ("a: [1\n", "line 2"),
        ("a: 2026-99-99\n", "month must be in 1..12"),
    ],
)
def test_yaml_that_is_not_plain_is_refused_in_one_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ValueError, match="not valid YAML") as caught:
        read_yaml(written(tmp_path, text))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("opening", ["[", "{a: ", "- "])
def test_any_depth_is_an_error_and_no_crash(tmp_path: Path, opening: str) -> None:
    with pytest.raises(ValueError, match="not valid YAML"):
        read_yaml(written(tmp_path, opening * 20_000 + "\n"))


def test_few_lines_can_not_grow_to_fill_the_memory(tmp_path: Path) -> None:
    """Merges of merges, ten times as many keys a line; and aliases of aliases."""
    lines = ["a0: &a0 {" + ", ".join(f"k{i}: 1" for i in range(400)) + "}"]
    lines += [f"a{n}: &a{n} {{" + f"<<: [{', '.join([f'*a{n - 1}'] * 300)}]" + "}" for n in range(1, 4)]
    with pytest.raises(ValueError, match="more than 100000 keys"):
        read_yaml(written(tmp_path, "\n".join(lines)))
    with pytest.raises(yaml.YAMLError, match="more than 100000 keys"):
        parse_yaml("\n".join(lines))
    laughs = ["b0: &b0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    laughs += [f"b{n}: &b{n} [{', '.join([f'*b{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(ValueError, match="more than 1000000 values"):
        parse_yaml("\n".join(laughs))
    with pytest.raises(ValueError, match="contains itself"):
        parse_yaml("a: &a [*a]\n")


def test_merging_few_keys_is_allowed_and_the_last_of_duplicates_counts_in_parse_yaml() -> None:
    assert parse_yaml("base: &b {x: 1, y: 2}\nown: {<<: *b, y: 3}\n")["own"] == {"x": 1, "y": 3}
    assert parse_yaml("a: 1\na: 2\n") == {"a": 2}


def test_a_fault_names_line_and_column() -> None:
    with pytest.raises(yaml.YAMLError) as caught:
        yaml.safe_load("a: [1\nb: }")
    assert "at line 2, column" in fault_of_yaml(caught.value)
