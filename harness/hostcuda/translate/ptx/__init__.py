"""Inline PTX: replace `asm(...)` statements of CUDA sources by C++.

Runs in the builder's sandbox; text in, text out. `rewrite` replaces every `asm` statement, also in macro bodies, by a
C++ block on functions of `hostcuda/ptx_table.h`; line numbers stay. A statement with anything that is not emulated
becomes `::hostcuda::not_emulated("inline PTX: ...")`, so only a kernel that reaches it is refused. It is listed in
`RewrittenPtx.refused` with its line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from harness.hostcuda.translate.ptx import arithmetic, conversion, memory, warp  # noqa: F401  (they register their instructions)
from harness.hostcuda.translate.ptx.call import NotEmulatedError, PtxRegister, PtxScope, emit

__all__ = ["NotEmulatedError", "PtxRefusal", "RewrittenPtx", "rewrite", "translate"]

_KEYWORDS = {"asm", "__asm__", "__asm"}
_QUALIFIERS = {"volatile", "__volatile__", "inline", "__inline__", "goto"}
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_STRING_PREFIX = re.compile(r'(?:u8|[uUL])?(R)?"')
_OPERAND = re.compile(r'\s*(?:\[\s*(\w+)\s*\])?\s*"([^"]*)"\s*\(', re.S)
_WIDTHS = {"h": 16, "r": 32, "f": 32, "l": 64, "d": 64, "n": 64, "q": 128}
_REGISTER_TYPES = {1: "bool", 16: "std::uint16_t", 32: "std::uint32_t", 64: "std::uint64_t", 128: "unsigned __int128"}
_DECLARED = re.compile(r"\.(?:reg)\s+\.(\w+)\s+(.*)", re.S)
_LABEL = re.compile(r"\s*([A-Za-z_$][\w$]*)\s*:(?!:)")
_PREDICATE = re.compile(r"@(!?)\s*(%?[\w$]+)\s*(.*)", re.S)


@dataclass(frozen=True, slots=True, kw_only=True)
class PtxRefusal:
    """One `asm` statement that can't be executed: its 1-based line and the reason."""

    line: int
    construct: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RewrittenPtx:
    """A source without `asm`, with the same lines, and the refused statements."""

    text: str
    refused: tuple[PtxRefusal, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Operand:
    name: str | None
    constraint: str
    expression: str


def rewrite(source: str) -> RewrittenPtx:
    """Replace every `asm` statement of a CUDA source by C++ for the host device."""
    pieces: list[str] = []
    refused: list[PtxRefusal] = []
    done = 0
    for start, end in _statements(source):
        text = source[start:end]
        line = source.count("\n", 0, start) + 1
        try:
            code = translate(text)
        except NotEmulatedError as error:
            refused.append(PtxRefusal(line=line, construct=f"inline PTX: {error}"))
            code = f'::hostcuda::not_emulated("inline PTX: {_quoted(str(error))}")'
        newline = "\\\n" if re.search(r"\\[ \t]*\n", text) else "\n"
        pieces += [source[done:start], code, newline * text.count("\n")]
        done = end
    pieces.append(source[done:])
    return RewrittenPtx(text="".join(pieces), refused=tuple(refused))


def translate(statement: str) -> str:
    """Translate one `asm` statement to C++.

    Args:
        statement: The text from the keyword to the closing parenthesis, without the semicolon.

    Returns:
        C++ on one line.

    Raises:
        NotEmulatedError: A construct has no translation; the message is the construct.
    """
    body = statement[statement.index("(") + 1 : statement.rindex(")")]
    sections = _split(body, ":")
    template = _joined_strings(sections[0])
    outputs = _operands(sections[1]) if len(sections) > 1 else []
    inputs = _operands(sections[2]) if len(sections) > 2 else []
    if len(sections) == 1:
        template = template.replace("%", "%%")
    operands = outputs + inputs
    scope = PtxScope(operands={})
    before: list[str] = []
    after: list[str] = []
    for number, operand in enumerate(operands):
        letter = operand.constraint.strip("=+&,")
        if letter not in _WIDTHS:
            raise NotEmulatedError(f'operand constraint "{operand.constraint}"')
        variable, kind = f"hc_{number}", _REGISTER_TYPES[_WIDTHS[letter]]
        register = PtxRegister(code=variable, width=_WIDTHS[letter])
        scope.operands[f"%{number}"] = register
        if operand.name is not None:
            scope.operands[f"%[{operand.name}]"] = register
        expression = re.sub(r"\\?[ \t]*\n", " ", operand.expression).strip()
        if number >= len(outputs):
            before.append(f"const {kind} {variable} = ::hostcuda::ptx::operand<{kind}>({expression});")
        else:
            before.append(f"auto&& {variable}_at = ({expression});")
            initial = f" = ::hostcuda::ptx::operand<{kind}>({variable}_at)" if "+" in operand.constraint else "{}"
            before.append(f"{kind} {variable}{initial};")
            after.append(f"::hostcuda::ptx::result({variable}_at, {variable});")
    program, labels = _program(template, scope)
    if not program and not operands:
        return "((void)0)"
    local = f"__label__ {', '.join(labels)}; " if labels else ""
    return "do { " + local + " ".join(before + program + after) + " } while (0)"


def _program(template: str, scope: PtxScope) -> tuple[list[str], list[str]]:
    """The C++ statements of a PTX body (`%%` still doubled), and its labels."""
    text = re.sub(
        r"(?<!%)((?:%%)*)%=", r"\g<1>0", template
    )  # labels are local to the statement, so one number suffices
    text = text.replace("%%", "%")  # an operand is % and digits, so a register named %r1 stays distinct
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    text = re.sub(r"//[^\n]*", " ", text)
    code: list[str] = []
    labels: list[str] = []
    for piece in _instructions(text):
        if piece == "{":
            scope.push()
            code.append("{")
        elif piece == "}":
            scope.pop()
            code.append("}")
        elif piece.endswith(":"):
            labels.append(scope.label(piece[:-1]))
            code.append(f"{labels[-1]}: ;")
        elif piece.startswith("."):
            code += _declaration(piece, scope)
        else:
            code.append(_instruction(piece, scope))
    # A jump must not cross the initialisation of a variable, so all registers come first if there are labels.
    if labels:
        declared = [line for line in code if line.startswith("/*reg*/")]
        code = declared + [line for line in code if not line.startswith("/*reg*/")]
    return [line.removeprefix("/*reg*/") for line in code], labels


def _instruction(piece: str, scope: PtxScope) -> str:
    guarded = _PREDICATE.fullmatch(piece)
    condition = ""
    if guarded:
        register = scope.find(guarded[2])
        condition = f"if ({'!' if guarded[1] else ''}{register.code}) "
        piece = guarded[3]
    opcode, *rest = piece.split(maxsplit=1)
    operands = [part.strip() for part in _split(rest[0], ",")] if rest else []
    return condition + "{ " + emit(opcode, operands, scope) + " }"


def _declaration(piece: str, scope: PtxScope) -> list[str]:
    match = _DECLARED.fullmatch(piece.strip())
    if match is None:
        raise NotEmulatedError(f"PTX directive {piece.split()[0]}")
    kind = match[1]
    width = 1 if kind == "pred" else int(re.sub(r"\D", "", kind) or 0)
    if width not in _REGISTER_TYPES:
        raise NotEmulatedError(f"PTX register of type .{kind}")
    lines = []
    for name in (part.strip() for part in match[2].split(",")):
        counted = re.fullmatch(r"(%?[\w$]+)<(\d+)>", name)
        names = [f"{counted[1]}{i}" for i in range(int(counted[2]))] if counted else [name]
        for single in names:
            register = scope.declare(single, width)
            lines.append(f"/*reg*/{_REGISTER_TYPES[width]} {register.code}{{}}; (void){register.code};")
    return lines


def _instructions(text: str) -> Iterator[str]:
    """Split a PTX body into instructions, declarations, `{`, `}` and `label:`.

    A brace opens a scope only where an instruction may begin; elsewhere it groups operands.
    """
    current = ""
    depth = 0
    for char in text:
        if not current.strip() and depth == 0 and char in "{}":
            current = ""
            yield char
            continue
        depth += (char == "{") - (char == "}")
        if char == ";" and depth == 0:
            if current.strip():
                yield current.strip()
            current = ""
            continue
        current += char
        label = _LABEL.fullmatch(current)
        if label:
            yield label[1] + ":"
            current = ""
    if current.strip():
        yield current.strip()


def _operands(section: str) -> list[_Operand]:
    found = []
    for part in _split(section, ","):
        if not part.strip():
            continue
        match = _OPERAND.match(part)
        if match is None:
            raise NotEmulatedError("asm operand assembled by a macro")
        found.append(_Operand(name=match[1], constraint=match[2], expression=part[match.end() : part.rindex(")")]))
    return found


def _joined_strings(section: str) -> str:
    """The text of adjacent string literals; other text between them is refused."""
    text = ""
    position = 0
    section = re.sub(r"\\[ \t]*\n", " \n", section)
    while position < len(section):
        end = _skip(section, position)
        piece = section[position:end]
        match = _STRING_PREFIX.match(piece)
        if match:
            if match[1]:
                delimiter = piece[match.end() : piece.index("(")]
                text += piece[piece.index("(") + 1 : len(piece) - len(delimiter) - 2]
            else:
                text += _unescaped(piece[match.end() : -1])
        elif not piece.isspace() and not piece.startswith(("//", "/*")):
            raise NotEmulatedError(f"asm text assembled by a macro ({piece.strip()})")
        position = end
    return text


def _unescaped(text: str) -> str:
    escapes = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'", "0": "\0"}
    return re.sub(r"\\(.)", lambda match: escapes.get(match[1], match[1]), text, flags=re.S)


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")


def _split(text: str, separator: str) -> list[str]:
    """Split at a separator outside strings, comments and brackets."""
    parts: list[str] = []
    current = position = depth = 0
    while position < len(text):
        char = text[position]
        depth += (char in "([{") - (char in ")]}")
        if char == separator and depth == 0:
            parts.append(text[current:position])
            current = position + 1
        position = _skip(text, position)
    parts.append(text[current:])
    return parts


def _skip(text: str, position: int) -> int:
    """The end of the token at `position`.

    A token is a comment, a literal, an identifier, or one character.
    """
    if text.startswith("//", position):
        end = text.find("\n", position)
        return len(text) if end < 0 else end
    if text.startswith("/*", position):
        end = text.find("*/", position + 2)
        return len(text) if end < 0 else end + 2
    match = _STRING_PREFIX.match(text, position)
    if match and match[1]:
        opening = text.find("(", match.end())
        closing = text.find(")" + text[match.end() : opening] + '"', opening)
        return len(text) if closing < 0 else closing + (opening - match.end()) + 2
    if match or text[position] == "'":
        quote = '"' if match else "'"
        end = match.end() if match else position + 1
        while end < len(text) and text[end] != quote and text[end] != "\n":
            end += 2 if text[end] == "\\" else 1
        return min(end + 1, len(text))
    if text[position].isdigit():
        number = re.compile(r"[\w.']+").match(text, position)  # 1'000'000 contains no character literal
        return number.end() if number else position + 1
    word = _IDENTIFIER.match(text, position)
    return word.end() if word else position + 1


def _statements(source: str) -> Iterator[tuple[int, int]]:
    """Start and end (after the closing parenthesis) of every `asm` statement."""
    position = 0
    while position < len(source):
        end = _skip(source, position)
        if source[position:end] in _KEYWORDS:
            opening = end
            while opening < len(source) and (source[opening].isspace() or source[opening] == "\\"):
                opening += 1
                word = _IDENTIFIER.match(source, opening)
                if word and word[0] in _QUALIFIERS:
                    opening = word.end()
            if opening < len(source) and source[opening] == "(":
                closing = _closing(source, opening)
                yield position, closing
                end = closing
        position = end


def _closing(text: str, opening: int) -> int:
    depth = 0
    position = opening
    while position < len(text):
        depth += (text[position] == "(") - (text[position] == ")")
        position = _skip(text, position)
        if depth == 0:
            return position
    return len(text)
