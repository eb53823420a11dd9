"""A corpus in the manner of JSONTestSuite, of our own: values that JSON is, is not, and may be.

Each value is tried inside ``params``, inside a member nobody reads, and alone. None of them can
become another value by what stands around it.
"""

from __future__ import annotations

from typing import NamedTuple

# -- must be accepted ----------------------------------------------------------------

ACCEPT: dict[str, bytes] = {
    "null": b"null",
    "true": b"true",
    "false": b"false",
    # numbers
    "zero": b"0",
    "minus zero": b"-0",
    "one digit": b"7",
    "negative": b"-12",
    "zero point": b"0.5",
    "negative fraction": b"-0.25",
    "trailing zeros": b"1.500",
    "many digits after the point": b"0.12345678901234567890123456789",
    "exponent": b"1e3",
    "big E": b"1E3",
    "plus in exponent": b"1e+3",
    "minus in exponent": b"1e-3",
    "leading zero in exponent": b"1e01",
    "zero exponent": b"0e0",
    "fraction and exponent": b"1.5e2",
    "zero to a power": b"0E+1",
    "the largest 53 bit": b"9007199254740993",
    "the largest 64 bit": b"18446744073709551615",
    "the smallest 64 bit": b"-9223372036854775808",
    "over 64 bit": b"18446744073709551616",
    "a hundred digits": b"1" * 100,
    "close to the largest float": b"1.7e308",
    "close to the smallest float": b"5e-324",
    # strings
    "empty string": b'""',
    "plain string": b'"hello"',
    "space": b'" "',
    "delete is no control character": b'"\x7f"',
    "all short escapes": rb'"\" \\ \/ \b \f \n \r \t"',
    "escaped nul": rb'"\u0000"',
    "escaped control": rb'"\u001f"',
    "escape in capitals": rb'"\u00E9\u00AB"',
    "escape in small letters": rb'"\u00e9\u00ab"',
    "escaped ASCII": rb'"\u0061"',
    "escaped quote": rb'"\u0022"',
    "escaped backslash": rb'"\u005c"',
    "escaped surrogate pair": rb'"\ud83d\ude00"',
    "escaped pair in capitals": rb'"\uD83D\uDE00"',
    "escaped non-character": rb'"\uffff"',
    "escaped private use": rb'"\ue000"',
    "escaped byte order mark": rb'"\ufeff"',
    "two bytes": "\u00e9".encode().join([b'"', b'"']),
    "three bytes": "\u20ac".encode().join([b'"', b'"']),
    "four bytes": "\U0001f600".encode().join([b'"', b'"']),
    "last code point": "\U0010ffff".encode().join([b'"', b'"']),
    "non-character": "\uffff".encode().join([b'"', b'"']),
    "byte order mark inside": "\ufeff".encode().join([b'"', b'"']),
    "line separator": "\u2028\u2029".encode().join([b'"', b'"']),
    "next line": "\u0085".encode().join([b'"', b'"']),
    "brackets in a string": b'"[{]}"',
    "comment in a string": b'"/* no */ // no"',
    "a backslash before the end": rb'"a\\"',
    "two backslashes before the end": rb'"a\\\\"',
    "escaped quote before the end": rb'"a\""',
    "a long string": b'"' + b"x" * 5000 + b'"',
    "a long string of escapes": b'"' + rb"\u00e9" * 500 + b'"',
    "NaN in a string": b'"NaN"',
    "json in a string": rb'"{\"a\":[1,2]}"',
    # arrays
    "empty array": b"[]",
    "empty array with space": b"[ ]",
    "array of one": b"[1]",
    "array of kinds": b'[null, 1, "1", {}, [], true, 1.5]',
    "nested arrays": b"[[[[]]],[[]],[]]",
    "array with lines": b"[\n1,\r\n2\n,\t3 ]",
    "array of many": b"[" + b",".join([b"0"] * 1000) + b"]",
    # objects
    "empty object": b"{}",
    "empty object with space": b"{ }",
    "empty key": b'{"":0}',
    "escaped key": rb'{"\u0061\n":1}',
    "nul in a key": rb'{"a\u0000b":1}',
    "same key twice": b'{"a":1,"a":2}',
    "same pair twice": b'{"a":1,"a":1}',
    "nested objects": b'{"a":{"b":{"c":{}}}}',
    "object with lines": b'{\n"a"\n:\n1\n,\t"b":\r\n2}',
    "long keys": b'{"' + b"k" * 500 + b'":1}',
    "key that is not ASCII": '{"\u00e9\U0001f600":1}'.encode(),
    "envelope names inside": b'{"jsonrpc":"1.0","id":null,"method":5}',
    # white space and depth
    "blanks around": b" \t 1 \t ",
    "lines around": b"\r\n1\r\n",
    "depth 40": b"[" * 40 + b"]" * 40,
    "depth 40 of objects": b'{"a":' * 40 + b"1" + b"}" * 40,
}

# -- must be refused -----------------------------------------------------------------

REFUSE: dict[str, bytes] = {
    "nothing": b"",
    "only blanks": b"  ",
    # words
    "cut word": b"tru",
    "long word": b"nulll",
    "capital word": b"True",
    "Python's none": b"None",
    "undefined": b"undefined",
    "bare word": b"abc",
    "NaN": b"NaN",
    "minus NaN": b"-NaN",
    "Infinity": b"Infinity",
    "minus Infinity": b"-Infinity",
    "short infinity": b"-inf",
    # numbers
    "plus": b"+1",
    "two minus": b"--1",
    "only minus": b"-",
    "minus and space": b"- 1",
    "leading zero": b"01",
    "negative leading zero": b"-01",
    "two zeros": b"00",
    "no digit before the point": b".5",
    "negative without digit": b"-.5",
    "no digit after the point": b"1.",
    "no digit between point and e": b"1.e1",
    "two points": b"1.2.3",
    "no digit in exponent": b"1e",
    "only a sign in exponent": b"1e+",
    "two signs in exponent": b"1e+-1",
    "point in exponent": b"1e1.5",
    "two exponents": b"1e1e1",
    "hexadecimal": b"0x10",
    "octal": b"0o17",
    "underscore": b"1_000",
    "comma as point": b"1,5",
    "space inside": b"1 000",
    "letter behind": b"12a",
    "full-width digit": "\uff11".encode(),
    # strings
    "single quotes": b"'a'",
    "no end": b'"a',
    "no beginning": b'a"',
    "end is escaped": rb'"a\"',
    "raw tab": b'"a\tb"',
    "raw newline": b'"a\nb"',
    "raw nul": b'"a\x00b"',
    "raw unit separator": b'"a\x1fb"',
    "unknown escape": rb'"\q"',
    "escaped single quote": rb'"\'"',
    "hex escape": rb'"\x41"',
    "octal escape": rb'"\101"',
    "capital escape": rb'"\N"',
    "unicode escape with capital U": rb'"\U0001f600"',
    "short unicode escape": rb'"\u12"',
    "unicode escape without digits": rb'"\u"',
    "bad digit in escape": rb'"\u00g0"',
    "sign in escape": rb'"\u+123"',
    "braces in escape": rb'"\u{61}"',
    "escaped raw newline": b'"\\\n"',
    "escaped raw nul": b'"\\\x00"',
    "escape that is not ASCII": '"\\\u00e9"'.encode(),
    "two strings": b'"a" "b"',
    "backticks": b"`a`",
    "curly quotes": "\u201ca\u201d".encode(),
    # surrogates: JSON's grammar has them, no text does (our choice is the strict one)
    "high surrogate alone": rb'"\ud800"',
    "low surrogate alone": rb'"\udc00"',
    "two high surrogates": rb'"\ud800\ud800"',
    "surrogates in the wrong order": rb'"\udc00\ud800"',
    "high surrogate and letter": rb'"\ud800a"',
    "high surrogate and escape": rb'"\ud800\n"',
    "half an escape after a high surrogate": rb'"\ud800\u"',
    # arrays
    "no closing bracket": b"[1",
    "no opening bracket": b"1]",
    "wrong bracket": b"[1}",
    "trailing comma": b"[1,]",
    "leading comma": b"[,1]",
    "two commas": b"[1,,2]",
    "only a comma": b"[,]",
    "no comma": b"[1 2]",
    "colon": b"[1:2]",
    "pair in array": b'["a":1]',
    "two closing brackets": b"[]]",
    "semicolon": b"[1;2]",
    "round brackets": b"(1)",
    "unfinished deep": b"[" * 50,
    # objects
    "no closing brace": b'{"a":1',
    "wrong brace": b'{"a":1]',
    "trailing comma in object": b'{"a":1,}',
    "leading comma in object": b'{,"a":1}',
    "two commas in object": b'{"a":1,,"b":2}',
    "no colon": b'{"a" 1}',
    "two colons": b'{"a"::1}',
    "equals": b'{"a"=1}',
    "no value": b'{"a":}',
    "no key": b"{:1}",
    "only a key": b'{"a"}',
    "number as key": b"{1:1}",
    "null as key": b"{null:1}",
    "bare key": b"{a:1}",
    "single-quoted key": b"{'a':1}",
    "array as key": b"{[]:1}",
    "comma for colon": b'{"a",1}',
    "half a key": b'{"a:1}',
    "two closing braces": b'{"a":1}}',
    # around it
    "block comment": b"/* c */ 1",
    "line comment": b"1 // c",
    "hash comment": b"1 # c",
    "form feed": b"\x0c1",
    "vertical tab": b"\x0b1",
    "no-break space": "\u00a01".encode(),
    "byte order mark": b"\xef\xbb\xbf1",
    "nul behind": b"1\x00",
    "nul alone": b"\x00",
    "word behind": b"1 true",
}

# Not UTF-8; the text says so, whatever else might be wrong.
NOT_UTF8: dict[str, bytes] = {
    "continuation alone": b'"\x80"',
    "first byte alone": b'"\xc3"',
    "cut in the middle": b'"\xe2\x82"',
    "overlong slash": b'"\xc0\xaf"',
    "overlong nul": b'"\xc0\x80"',
    "overlong in three bytes": b'"\xe0\x80\xaf"',
    "encoded surrogate": b'"\xed\xa0\x80"',
    "encoded surrogate pair": b'"\xed\xa0\xbd\xed\xb8\x80"',
    "over the last code point": b'"\xf4\x90\x80\x80"',
    "five bytes": b'"\xf8\x88\x80\x80\x80"',
    "FF": b'"\xff"',
    "FE": b'"\xfe"',
    "Latin-1": b'"caf\xe9"',
    "UTF-16": b'\xff\xfe"\x00a\x00"\x00',
    "bad byte in a key": b'{"\xff":1}',
    "bad byte outside of a string": b"\xff",
    "bad byte deep inside": b'{"a":[{"b":"\xff"}]}',
}


class Choice(NamedTuple):
    """Where JSON leaves it to us. ``inside`` and ``alone``: accepted there, or the code."""

    value: bytes
    inside: int | None
    alone: int | None
    why: str


CHOICES: dict[str, Choice] = {
    "too large for a float": Choice(
        b"1e400", None, -32700, "a slice is not converted; who reads it as a number refuses it"
    ),
    "too large, negative": Choice(b"-1e400", None, -32700, "the same"),
    "too small for a float": Choice(b"1e-400", None, None, "it becomes 0.0"),
    "as many digits as Python converts": Choice(b"7" * 4300, None, None, "an exact integer"),
    "more digits than Python converts": Choice(
        b"7" * 4301, None, -32700, "a guard against quadratic time"
    ),
    "depth 127": Choice(b"[" * 126 + b"]" * 126, None, None, "the limit counts the envelope too"),
    "depth 200": Choice(b"[" * 200 + b"]" * 200, -32600, None, "over max_depth"),
    "depth 200 of objects": Choice(
        b'{"a":' * 200 + b"1" + b"}" * 200, -32600, None, "over max_depth"
    ),
    "depth 100,000": Choice(
        b"[" * 100_000 + b"]" * 100_000, -32700, -32700, "over the interpreter's stack"
    ),
    "depth 100,000, unfinished": Choice(b"[" * 100_000, -32700, -32700, "the same"),
    "depth 100,000 of objects, unfinished": Choice(b'{"a":' * 100_000, -32700, -32700, "the same"),
}
