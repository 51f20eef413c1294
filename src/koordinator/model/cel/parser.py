"""From the text of an expression to its nodes, by recursive descent (cel-spec, ``CEL.g4``)."""

from __future__ import annotations

from typing import Final

from koordinator.model.cel.errors import CompileError, Issue
from koordinator.model.cel.lexer import LexicalError, Token, bytes_value, number_value, text_value, tokens
from koordinator.model.cel.macros import Builder, MacroError, expand
from koordinator.model.cel.syntax import (
    RESERVED,
    Call,
    Entry,
    FieldValue,
    Ident,
    ListLiteral,
    Literal,
    MapLiteral,
    Node,
    Select,
    StructLiteral,
    qualified_name,
)
from koordinator.model.cel.values import INT_MAX, INT_MIN, UINT_MAX, UInt

LONGEST: Final = 100_000
"""Characters of an expression, as in cel-go."""
_DEEPEST: Final = 250
"""Levels of nodes."""
_NESTED: Final = 90
"""Levels of brackets; each takes several frames of Python's stack."""
_PRECEDENCE: Final = {
    "||": 1, "&&": 2, "<": 3, "<=": 3, ">": 3, ">=": 3, "==": 3, "!=": 3, "in": 3,
    "+": 4, "-": 4, "*": 5, "/": 5, "%": 5,
}  # fmt: skip
_AFTER_BRACKET: Final = frozenset((*_PRECEDENCE, ".", "[", "?", ":", "}", "]"))
_STARTS: Final = (
    "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}"
)
"""What an expression begins with, as the real server's parser lists it."""


def parse(source: str) -> Node:
    """Raises CompileError."""
    if len(source) > LONGEST:
        why = f"expression code point size exceeds limit: size: {len(source)}, limit {LONGEST}"
        raise CompileError("", [Issue(0, why)])
    issues: list[Issue] = []
    read = list(tokens(source, issues))
    parser = _Parser(read, issues)
    try:
        root = parser.whole()
    except _SyntaxError as error:
        raise CompileError(source, [*issues, error.issue]) from error
    except RecursionError as error:
        raise CompileError(source, [_too_deep(0)]) from error
    if issues:
        raise CompileError(source, issues)
    return root


class _SyntaxError(Exception):
    def __init__(self, position: int, message: str) -> None:
        self.issue = Issue(position, message)
        super().__init__(message)


def _too_deep(position: int) -> Issue:
    return Issue(position, f"expression recursion limit exceeded: {_DEEPEST}")


class _Parser:
    def __init__(self, read: list[Token], issues: list[Issue]) -> None:
        self._tokens = read
        self._at = 0
        self._issues = issues
        self._nested = 0
        self._builder = Builder()
        self._levels: dict[int, int] = {}
        """Node -> the levels of nodes below it and itself."""

    def whole(self) -> Node:
        root = self._expression()
        if self._peek().kind != "end":
            raise self._unexpected("<EOF>")
        return root

    def _peek(self) -> Token:
        return self._tokens[self._at]

    def _next(self) -> Token:
        token = self._tokens[self._at]
        self._at += 1
        return token

    def _accept(self, text: str) -> Token | None:
        token = self._tokens[self._at]
        if token.kind == "operator" and token.text == text:
            self._at += 1
            return token
        return None

    def _expect(self, text: str) -> Token:
        token = self._accept(text)
        if token is not None:
            return token
        found = self._peek()
        if found.text in _AFTER_BRACKET or found.kind == "end":
            raise _SyntaxError(found.position, f"Syntax error: missing '{text}' at '{found.text}'")
        raise self._unexpected(f"'{text}'")

    def _unexpected(self, expected: str) -> _SyntaxError:
        token = self._peek()
        # One word too many, after which all is well, is named otherwise by the real server's parser.
        only = expected == "<EOF>" and self._tokens[self._at + 1].kind == "end"
        kind = "extraneous" if only else "mismatched"
        return _SyntaxError(token.position, f"Syntax error: {kind} input '{token.text}' expecting {expected}")

    def _built(self, node: Node, *below: Node) -> Node:
        """Note the levels of a node. Raises _SyntaxError when there are too many."""
        level = 1 + max((self._levels.get(id(part), 1) for part in below), default=0)
        if level > _DEEPEST:
            raise _SyntaxError(node.position, _too_deep(0).message)
        self._levels[id(node)] = level
        return node

    def _expression(self) -> Node:
        self._nested += 1
        if self._nested > _NESTED:
            raise _SyntaxError(self._peek().position, _too_deep(0).message)
        condition = self._binary(1)
        if (mark := self._accept("?")) is not None:
            then = self._binary(1)
            self._expect(":")
            otherwise = self._expression()
            made = self._builder.call(mark.position, "_?_:_", condition, then, otherwise)
            condition = self._built(made, condition, then, otherwise)
        self._nested -= 1
        return condition

    def _binary(self, least: int) -> Node:
        """Operators of at least this precedence."""
        left = self._unary()
        while True:
            token = self._peek()
            strength = _PRECEDENCE.get(token.text, 0) if token.kind == "operator" else 0
            if strength < least or not strength:
                return left
            if strength <= 2:
                left = self._chain(left, token.text, strength)
                continue
            self._at += 1
            right = self._binary(strength + 1)
            name = "@in" if token.text == "in" else f"_{token.text}_"
            left = self._built(self._builder.call(token.position, name, left, right), left, right)

    def _chain(self, first: Node, operator: str, strength: int) -> Node:
        """``a && b && c`` as a balanced tree, so that long ones are not deep."""
        terms, places = [first], []
        while (token := self._accept(operator)) is not None:
            places.append(token.position)
            terms.append(self._binary(strength + 1))
        return self._balanced(f"_{operator}_", terms, places)

    def _balanced(self, name: str, terms: list[Node], places: list[int]) -> Node:
        if len(terms) == 1:
            return terms[0]
        middle = len(terms) // 2
        left = self._balanced(name, terms[:middle], places[: middle - 1])
        right = self._balanced(name, terms[middle:], places[middle:])
        return self._built(self._builder.call(places[middle - 1], name, left, right), left, right)

    def _unary(self) -> Node:
        token = self._peek()
        if token.kind != "operator" or token.text not in ("!", "-"):
            return self._member()
        count = 0
        while self._accept(token.text) is not None:
            count += 1
        following = self._peek()
        if token.text == "-" and count == 1 and following.kind in ("int", "float"):
            self._at += 1
            return self._members(self._number(following, negative=True))
        operand = self._member()
        if count % 2 == 0:
            return operand
        name = "!_" if token.text == "!" else "-_"
        return self._built(self._builder.call(token.position, name, operand), operand)

    def _member(self) -> Node:
        return self._members(self._primary())

    def _members(self, node: Node) -> Node:
        while True:
            if (dot := self._accept(".")) is not None:
                node = self._selected(node, dot)
            elif (bracket := self._accept("[")) is not None:
                name = "_[?_]" if self._accept("?") else "_[_]"
                index = self._expression()
                self._expect("]")
                node = self._built(self._builder.call(bracket.position, name, node, index), node, index)
            else:
                return node

    def _selected(self, node: Node, dot: Token) -> Node:
        optional = self._accept("?") is not None
        token = self._peek()
        if token.kind not in ("name", "escaped"):
            kind = "no viable alternative at input '.'" if token.kind == "end" and optional else None
            message = kind or f"mismatched input '{token.text}' expecting IDENTIFIER"
            raise _SyntaxError(token.position, f"Syntax error: {message}")
        self._at += 1
        if token.kind == "escaped":
            raise _SyntaxError(token.position, "unsupported syntax: '`'")
        if optional:
            name = self._builder.literal(token.position, token.text)
            return self._built(self._builder.call(dot.position, "_?._", node, name), node)
        if (bracket := self._accept("(")) is not None:
            return self._called(bracket, token.text, self._arguments(), node)
        return self._built(Select(self._builder.id(), dot.position, node, token.text), node)

    def _arguments(self) -> list[Node]:
        if self._accept(")"):
            return []
        found = [self._expression()]
        while self._accept(","):
            found.append(self._expression())
        self._expect(")")
        return found

    def _called(self, bracket: Token, function: str, args: list[Node], target: Node | None) -> Node:
        below = [*args, *((target,) if target is not None else ())]
        try:
            expanded = expand(self._builder, bracket.position, function, target, args)
        except MacroError as error:
            self._issues.append(Issue(error.position, str(error)))
            return Literal(self._builder.id(), bracket.position, None)
        if expanded is not None:
            return self._built(self._built(expanded, *below), expanded)
        return self._built(Call(self._builder.id(), bracket.position, function, args, target), *below)

    def _primary(self) -> Node:
        token = self._peek()
        if token.kind == "operator":
            return self._bracketed(token)
        self._at += 1
        if token.kind == "name":
            return self._named(token)
        if token.kind in ("int", "uint", "float"):
            return self._number(token, negative=False)
        if token.kind == "literal":
            value = {"true": True, "false": False, "null": None}[token.text]
            return Literal(self._builder.id(), token.position, value)
        if token.kind in ("string", "bytes"):
            return self._text(token)
        self._at -= 1
        raise self._unexpected(_STARTS)

    def _text(self, token: Token) -> Node:
        try:
            value = text_value(token.text) if token.kind == "string" else bytes_value(token.text)
        except LexicalError as error:
            self._issues.append(Issue(token.position, str(error)))
            value = ""
        return Literal(self._builder.id(), token.position, value)

    def _number(self, token: Token, *, negative: bool) -> Node:
        value = number_value(token)
        position = token.position - 1 if negative else token.position
        value = -value if negative else value
        name = {"int": "int", "uint": "uint", "float": "double"}[token.kind]
        if (token.kind == "int" and not INT_MIN <= value <= INT_MAX) or (token.kind == "uint" and value > UINT_MAX):
            self._issues.append(Issue(position, f"invalid {name} literal"))
        if token.kind == "float" and value in (float("inf"), float("-inf")):
            self._issues.append(Issue(position, "invalid double literal"))
        return Literal(self._builder.id(), position, UInt(value) if token.kind == "uint" else value)

    def _named(self, token: Token, *, dotted: bool = False) -> Node:
        if token.text in RESERVED:
            self._issues.append(Issue(token.position, f"reserved identifier: {token.text}"))
        name = f".{token.text}" if dotted else token.text
        if (bracket := self._accept("(")) is not None:
            return self._called(bracket, name, self._arguments(), None)
        ident: Node = Ident(self._builder.id(), token.position, name)
        return self._message(ident)

    def _message(self, ident: Node) -> Node:
        """``a.b.Type{…}``: names up to a brace."""
        at, node = self._at, ident
        while self._accept(".") is not None and self._peek().kind == "name":
            node = Select(self._builder.id(), self._peek().position, node, self._next().text)
        brace = self._accept("{")
        if brace is None:
            self._at = at
            return ident
        return self._struct(brace, qualified_name(node) or "")

    def _struct(self, brace: Token, name: str) -> Node:
        fields: list[FieldValue] = []
        while self._accept("}") is None:
            optional = self._accept("?") is not None
            field = self._next()
            if field.kind != "name":
                self._at -= 1
                raise self._unexpected("'}'")
            colon = self._expect(":")
            fields.append(FieldValue(field.text, colon.position, self._expression(), optional))
            if self._accept(",") is None:
                self._expect("}")
                break
        made = StructLiteral(self._builder.id(), brace.position, name, fields)
        return self._built(made, *(field.value for field in fields))

    def _bracketed(self, token: Token) -> Node:
        if self._accept("("):
            inner = self._expression()
            self._expect(")")
            return inner
        if self._accept("["):
            return self._list(token)
        if self._accept("{"):
            return self._map(token)
        if self._accept(".") and self._peek().kind == "name":
            return self._named(self._next(), dotted=True)
        raise self._unexpected(_STARTS)

    def _list(self, bracket: Token) -> Node:
        items: list[Node] = []
        optional: set[int] = set()
        while self._accept("]") is None:
            if self._accept("?"):
                optional.add(len(items))
            items.append(self._expression())
            if self._accept(",") is None:
                self._expect("]")
                break
        return self._built(ListLiteral(self._builder.id(), bracket.position, items, frozenset(optional)), *items)

    def _map(self, brace: Token) -> Node:
        entries: list[Entry] = []
        while self._accept("}") is None:
            optional = self._accept("?") is not None
            key = self._expression()
            self._expect(":")
            entries.append(Entry(key, self._expression(), optional))
            if self._accept(",") is None:
                self._expect("}")
                break
        below = [part for entry in entries for part in (entry.key, entry.value)]
        return self._built(MapLiteral(self._builder.id(), brace.position, entries), *below)
