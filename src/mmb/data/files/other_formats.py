"""Files that are taken for text, but are something else: known by how they start."""

from pathlib import Path

from mmb.data.errors import TableError

START = 8  # bytes that are looked at
_UTF16 = ("text in UTF-16", "save it as plain CSV in UTF-8")
_EXPAND = "expand it, or compress it by gzip or Zstandard instead"
_KINDS = {
    b"PK\x03\x04": ("a zip archive or a workbook", "save it as CSV or Parquet"),
    b"\xd0\xcf\x11\xe0": ("a workbook", "save the sheet as CSV (UTF-8)"),
    b"\xff\xfe": _UTF16,
    b"\xfe\xff": _UTF16,
    b"BZh": ("compressed by bzip2", _EXPAND),
    b"\xfd7zXZ": ("compressed by xz", _EXPAND),
    b"%PDF": ("a PDF document", "save the table in it as CSV"),
}
_COMPRESSED = {
    b"\x1f\x8b": ("compressed twice", "expand it once"),
    b"\x28\xb5\x2f\xfd": ("compressed twice", "expand it once"),
    b"PAR1": ("a compressed Parquet file", "expand it"),
    b"ARROW1": ("a compressed Arrow file", "expand it"),
}


def refuse_other_formats(path: Path, start: bytes, expanded: bool) -> None:
    """Refuse a file that is not text in UTF-8.

    Args:
        path: The file, for the message.
        start: Its first bytes, after it was expanded.
        expanded: Whether it was.
    """
    for signs, (what, remedy) in {**_KINDS, **(_COMPRESSED if expanded else {})}.items():
        if start.startswith(signs):
            raise TableError(path, f"it is {what}", remedy)
    if start and not start.strip(b"\0"):
        raise TableError(path, "it begins with zero bytes", "get it again from where it comes from")
    if b"\0" in start[:2]:
        raise TableError(path, f"it is {_UTF16[0]}", _UTF16[1])
