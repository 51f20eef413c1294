"""Expressions and their values: the language, its extensions, and Kubernetes' functions."""

from __future__ import annotations

from typing import Any

import pytest

from koordinator.model.cel.errors import CompileError
from koordinator.model.cel.program import Declarations, compile_expression
from koordinator.model.cel.types import DYN, INT, STRING, list_of, map_of, object_type

_FIELDS = {"Self": {"n": INT, "t": STRING, "l": list_of(INT), "m": map_of(STRING, STRING)}}
_DECLARED = Declarations({"self": object_type("Self"), "any": DYN}, _FIELDS.get)
_VALUES = {"self": {"n": 3, "t": "abc", "l": [1, 2, 3], "m": {"k": "v"}}, "any": [1, "a", {"b": None}]}
TRUE = [
    "self.n + 1 == 4 && self.n - 4 == -1 && 7 / 2 == 3 && -7 / 2 == -3 && -7 % 3 == -1",
    "1.5 + 1.5 == 3.0 && dyn(1) == 1.0 && dyn(1) == 1u && dyn(1) != '1' && 2u * 3u == 6u",
    "0x10 == 16 && 1e3 == 1000.0 && .5 == 0.5 && 'a' + \"b\" == 'ab' && b'a' + b'b' == b'ab'",
    r"'\x41\u00e4\101\n' == 'AäA\n' && r'\n'.size() == 2 && '''a'b''' == 'a\'b'",
    "true || 1 / 0 == 1",
    "1 / 0 == 1 || true",
    "!(false && 1 / 0 == 1)",
    "(self.n > 2 ? 'big' : 'small') == 'big'",
    "'b' in ['a', 'b'] && !('c' in ['a']) && 'k' in self.m && 2 in [1, 2]",
    "[1, 2] + [3] == [1, 2, 3] && {'a': 1} == {'a': 1} && [1, 2] != [2, 1]",
    "has(self.n) && !has(self.m.x) && self.m['k'] == 'v' && self.m.k == 'v'",
    "self.l.all(x, x > 0) && self.l.exists(x, x == 2) && self.l.exists_one(x, x == 2)",
    "self.l.map(x, x * 2) == [2, 4, 6] && self.l.map(x, x > 1, x) == [2, 3] && self.l.filter(x, x > 2) == [3]",
    "self.l.map(x, self.l.filter(y, y > x)) == [[2, 3], [3], []]",
    "self.m.all(k, k == 'k') && self.m.exists(k, v, k == 'k' && v == 'v') && self.l.all(i, v, i + 1 == v)",
    "self.l.transformList(i, v, i * v) == [0, 2, 6] && self.l.transformMap(i, v, v > 1, v) == {1: 2, 2: 3}",
    "self.m.transformMapEntry(k, v, {v: k}) == {'v': 'k'} && self.l.existsOne(i, v, i == v - 1 && v == 1)",
    "[0, 1].exists(x, 1 / x == 1)",
    "self.?n.orValue(0) == 3 && self.m[?'x'].orValue('d') == 'd' && self.l[?9].hasValue() == false",
    "optional.of(1).optMap(x, x + 1).value() == 2 && optional.none().or(optional.of(2)).value() == 2",
    "optional.of(1).optFlatMap(x, optional.of(x + 1)).orValue(1 / 0) == 2",
    "[?optional.of(1), ?optional.none()] == [1]",
    "{?'a': optional.of(1), ?'b': optional.none()} == {'a': 1} && !optional.ofNonZeroValue('').hasValue()",
    "type(1) == int && type('a') == string && type([]) == list && type(null) == null_type && type(int) == type",
    "any[0] == 1 && any[2].b == null && type(any[1]) == string && any.size() == 3",
    "timestamp('2024-02-29T12:30:15.5Z').getDayOfYear() == 59 && timestamp(0) == timestamp('1970-01-01T00:00:00Z')",
    "timestamp('2024-03-01T00:00:00Z') - timestamp('2024-02-29T00:00:00Z') == duration('24h')",
    "duration('1h30m') == duration('90m') && duration('1.5s').getMilliseconds() == 1500",
    "duration('-1ms') < duration('0')",
    "string(duration('90m')) == '5400s' && string(timestamp(1)) == '1970-01-01T00:00:01Z' && string(1.0) == '1'",
    "int('5') == 5 && double('1.5') == 1.5 && string(1e6) == '1e+06' && uint(3) == 3u && int(2.9) == 2 && bool('t')",
    "'hello'.charAt(1) == 'e' && 'hello'.indexOf('l') == 2 && 'hello'.lastIndexOf('l') == 3",
    "'a,b'.split(',') == ['a', 'b'] && ['a', 'b'].join('-') == 'a-b' && ' a '.trim() == 'a'",
    "'aXb'.lowerAscii() == 'axb' && 'hello'.replace('l', 'L', 1) == 'heLlo' && 'hello'.substring(1, 3) == 'el'",
    "'%s %d %.1f %x %b'.format(['a', 1, 1.25, 255, true]) == 'a 1 1.2 ff 1' && strings.quote('a\"') == '\"a\\\\\"\"'",
    "'a1b22'.find('[0-9]+') == '1' && 'a1b22'.findAll('[0-9]+') == ['1', '22'] && 'abc'.matches('^a.c$')",
    "[3, 1, 2].sort() == [1, 2, 3] && [1, 2, 1].distinct() == [1, 2] && [[1], [2]].flatten() == [1, 2]",
    "[1, 2, 3].slice(1, 3) == [2, 3] && [1, 2].reverse() == [2, 1] && lists.range(3) == [0, 1, 2]",
    "[{'a': 2}, {'a': 1}].sortBy(x, x.a).map(x, x.a) == [1, 2] && [1, 2].isSorted() && [1, 2].sum() == 3",
    "[1.5, 0.5].min() == 0.5 && ['a', 'b'].max() == 'b' && [1, 2, 1].lastIndexOf(1) == 2 && [1].indexOf(5) == -1",
    "sets.contains([1, 2], [2]) && sets.equivalent([1, 2, 2], [2, 1]) && !sets.intersects([1], [2])",
    "quantity('1.5Gi').isGreaterThan(quantity('1G')) && quantity('2').add(1).asInteger() == 3 && !isQuantity('x')",
    "quantity('500m').asApproximateFloat() == 0.5 && quantity('1k').compareTo(quantity('1000')) == 0",
    "ip('::1').isLoopback() && ip('10.0.0.1').isGlobalUnicast() && isIP('1.2.3.4') && !isIP('1.2.3')",
    "cidr('10.0.0.0/8').containsIP(ip('10.1.1.1')) && cidr('10.1.2.3/8').masked().ip() == ip('10.0.0.0')",
    "url('https://u@h:8/p?x=1#f').getHost() == 'h:8' && url('/a').getEscapedPath() == '/a' && !isURL('a b')",
    "semver('1.2.3').isLessThan(semver('1.10.0')) && semver('1.0.0-a.1').compareTo(semver('1.0.0')) == -1",
    "format.named('uuid').value().validate('x').hasValue() && !format.date().validate('2024-01-01').hasValue()",
    "jsonpatch.escapeKey('a/b~c') == 'a~1b~0c'",
]
ERRORS: dict[str, str] = {
    "self.m['x'] == ''": "no such key: x",
    "self.l[3] == 1": "index out of bounds: 3",
    "9223372036854775807 + self.n > 0": "integer overflow",
    "1u - 2u == 0u": "unsigned integer overflow",
    "1 % 0 == 1": "modulus by zero",
    "any[1] > 1": "no such overload",
    "any.x == 1": "unsupported index type 'list'",
    "duration(any[1]) == duration('1s')": "type conversion error from 'string' to 'google.protobuf.Duration'",
    "[1].slice(0, 2) == []": "cannot slice(0, 2), list is length 1",
    "'a'.substring(2) == ''": "index out of range: 2",
    "{'a': 1, 'a': 2}.size() == 1": "Failed with repeated key a",
    "self.l.transformMapEntry(i, v, {'a': i}).size() == 1": "insert failed: key a already exists",
    "optional.none().value() == 1": "optional.none() dereference",
    "[].max() == 1": "max called on empty list",
}
WRONG: dict[str, str] = {
    "self.x": "1:5: undefined field 'x'",
    "1 + ": "1:5: Syntax error: mismatched input '<EOF>' expecting ",
    "for": "1:1: reserved identifier: for",
    "1 == 'a'": "1:3: found no matching overload for '_==_' applied to '(int, string)'",
    "[1].map(1, 2)": "1:9: argument must be a simple name",
    "99999999999999999999": "1:1: invalid int literal",
    "9" * 5000: "1:1: invalid int literal",
    "int{}": "1:4: 'int' is not a message type",
    "self.t.matches('[')": "1:16: invalid matches argument",
    "(" * 200 + "1" + ")" * 200: "expression recursion limit exceeded",
    "1" + "+1" * 300: "expression recursion limit exceeded",
    r"'\z'": "unable to unescape string",
}


def _evaluated(expression: str) -> Any:
    result = compile_expression(expression, _DECLARED).evaluate(_VALUES)
    return result.error if result.error is not None else result.value


@pytest.mark.parametrize("expression", TRUE)
def test_value(expression: str) -> None:
    assert _evaluated(expression) is True


@pytest.mark.parametrize(("expression", "error"), ERRORS.items())
def test_error(expression: str, error: str) -> None:
    assert str(_evaluated(expression)) == error


@pytest.mark.parametrize(("expression", "issue"), WRONG.items(), ids=range(len(WRONG)))
def test_issue(expression: str, issue: str) -> None:
    with pytest.raises(CompileError) as caught:
        compile_expression(expression, _DECLARED)
    assert issue in str(caught.value)


def test_long_chains_of_conditions_are_not_deep() -> None:
    assert _evaluated(" && ".join(["self.n == 3"] * 300)) is True


def test_variables_of_a_fold_end_with_it() -> None:
    assert _evaluated("self.l.all(self, self > 0) && self.n == 3") is True
