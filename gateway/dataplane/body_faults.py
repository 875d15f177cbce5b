"""What is wrong with a request's body, told so that its sender finds it. Only refusals come here."""

from __future__ import annotations

import codecs
import re

BYTE_ORDER_MARK = codecs.BOM_UTF8
_MARKS = (  # the longer first: one begins with the other
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)
# Which of the first four bytes are zero, as JSON begins with two ASCII characters (RFC 4627, section 3).
_ZEROS: dict[tuple[bool, ...], str] = {
    (False, True, True, True): "UTF-32",
    (True, True, True, False): "UTF-32",
    (False, True, False, True): "UTF-16",
    (True, False, True, False): "UTF-16",
}
_TEXT_CHARSETS = (b"utf-8", b"utf8", b"us-ascii", b"ascii")
_CHARSET = re.compile(rb";\s*charset\s*=\s*\"?([^\";\s]*)", re.IGNORECASE)
# msgspec's words for an escape like \ud800 that is no half of a pair.
_ESCAPED_HALF = re.compile(r"(?:surrogate pair|unexpected end of hex escape) \(byte (\d+)\)")
_ENCODED_HALF = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")
# msgspec calls a body cut that ends within six bytes after the first half of a pair.
_HALF_NEAR_END = re.compile(
    rb"(?<!\\)(?:\\\\)*\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u)(?!\\?\Z).{1,5}\Z", re.DOTALL
)
_NEAR_END_BYTES = 32


def find_content_type_fault(content_type: bytes) -> str | None:
    """Say why a body of this type is not read, or None: JSON, whose text is UTF-8 (RFC 8259)."""
    media_type = content_type.partition(b";")[0].strip().lower()
    if media_type != b"application/json" and not media_type.endswith(b"+json"):
        return "The content type must be application/json."
    charset = _CHARSET.search(content_type)
    if charset is not None and charset[1].lower() not in _TEXT_CHARSETS:
        return "The content type's charset must be utf-8."
    return None


def describe_json_fault(body: bytes, error: Exception) -> str:
    """Return one sentence about a body that ``error`` says is no JSON; never its content."""
    if not body.strip():
        return "The body is empty; it must be a JSON object."
    encoding = _find_other_encoding(body)
    if encoding is not None:
        return f"The body is {encoding}; JSON must be UTF-8."
    if isinstance(error, UnicodeDecodeError):
        if _ENCODED_HALF.match(body, error.start):
            return _half_pair(f"at byte {error.start}")
        return f"The body is not valid JSON: it is not UTF-8 at byte {error.start}."
    text = str(error)
    half = _ESCAPED_HALF.search(text)
    if half is not None:
        return _half_pair(f"before byte {half[1]}")
    if _HALF_NEAR_END.search(body[-_NEAR_END_BYTES:]):
        return _half_pair("near its end")
    return f"The body is not valid JSON: {text}."


def _find_other_encoding(body: bytes) -> str | None:
    for mark, encoding in _MARKS:
        if body.startswith(mark):
            return encoding
    return _ZEROS.get(tuple(byte == 0 for byte in body[:4]))


def _half_pair(where: str) -> str:
    return (
        f"The body is not valid JSON: {where} is half of a surrogate pair without its other half,"
        " which is no character."
    )
