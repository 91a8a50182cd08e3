"""The two multipart forms of the file service: a strict reading of an upload's ordered pairs, and the parts of a download."""
import re

from .facts import wrong_with
from .wire import Refusal, bad_request, json_read, json_write

PARTS_MAX = 20000
HEADERS_MAX = 8 << 10
DISPOSITION = re.compile(r'form-data; name="([^"\\]*)"')


def boundary_of(content_type: str) -> bytes:
    m = re.fullmatch(r'multipart/form-data; ?boundary=(?:"([^"\\]{1,70})"|([0-9A-Za-z\'()+_,\-./:=?]{1,70}))', content_type)
    if not m:
        raise Refusal("invalidArgument", "the content type is no multipart/form-data with a boundary")
    return (m[1] or m[2]).encode()


def _malformed(index: int, path: str, what: str) -> Refusal:
    """The document has the refusal name the occurrence and, where one is known, the path."""
    return Refusal("invalidArgument", f"occurrence {index}: {what}", bad_request(f"items[{index}]", f"{path}: {what}" if path else what))


def _parts(body: bytes, boundary: bytes):
    """(index, headers, data) of every part; the closing delimiter is required, and nothing but white space may follow it."""
    delimiter = b"--" + boundary
    if not body.startswith(delimiter):
        raise _malformed(0, "", "the body does not start with its delimiter")
    at, index = len(delimiter), 0
    while True:
        if body.startswith(b"--", at):
            if body[at + 2:].strip(b"\r\n \t"):
                raise _malformed(index, "", "bytes after the closing delimiter")
            return
        if not body.startswith(b"\r\n", at):
            raise _malformed(index, "", "a delimiter line is cut" if at >= len(body) else "a delimiter line goes on")
        if index == PARTS_MAX:
            raise _malformed(index, "", "too many parts")
        # a part without headers would have its empty line at once
        head_end = at if body.startswith(b"\r\n\r\n", at) else body.find(b"\r\n\r\n", at)
        if head_end < 0 or head_end - at > HEADERS_MAX:
            raise _malformed(index, "", "a part's headers do not end")
        data_at = head_end + 4
        data_end = body.find(b"\r\n" + delimiter, data_at)
        if data_end < 0:
            raise _malformed(index, "", "no closing delimiter")
        yield index, _headers(index, body[at + 2:head_end]), body[data_at:data_end]
        at, index = data_end + 2 + len(delimiter), index + 1


def _headers(index: int, text: bytes) -> dict[str, str]:
    headers = {}
    for line in text.split(b"\r\n") if text else ():
        name, colon, value = line.decode("latin-1").partition(":")
        name = name.lower()
        if not colon or not re.fullmatch(r"[a-z0-9-]+", name) or name in headers:
            raise _malformed(index, "", "a part's header is malformed")
        headers[name] = value.strip()
    return headers


def upload_read(body: bytes, content_type: str) -> list[tuple[str, int, bytes]]:
    """(path, mode, bytes) of each file of an upload, in order; a Refusal for anything that is not metadata, content, metadata, content ..."""
    files: list[tuple[str, int, bytes]] = []
    header: dict | None = None
    index = -1
    for index, headers, data in _parts(body, boundary_of(content_type)):
        path = header["path"] if header else ""
        unknown = headers.keys() - {"content-disposition", "content-type", "content-length"}
        if "content-transfer-encoding" in headers:
            raise _malformed(index, path, "Content-Transfer-Encoding is refused")
        if unknown:
            raise _malformed(index, path, f"header {sorted(unknown)[0]} is not known")
        m = DISPOSITION.fullmatch(headers.get("content-disposition", ""))
        if not m:
            raise _malformed(index, path, "Content-Disposition is not form-data with a name alone")
        wanted, kind = ("content", "application/octet-stream") if header else ("metadata", "application/json")
        if m[1] != wanted:
            raise _malformed(index, path, f"part {m[1]!r} where {wanted!r} belongs")
        if headers.get("content-type") != kind:
            raise _malformed(index, path, f"content type of {wanted} is not {kind}")
        if header:
            files.append((header["path"], _mode(header), data))
            header = None
            continue
        try:
            header = json_read(data)
        except Refusal as wrong:
            raise _malformed(index, "", wrong.message) from None
        if wrong := wrong_with("FileHeader", header):
            raise _malformed(index, "", wrong)
    if header:
        raise _malformed(index, header["path"], "metadata without content")
    if index < 0:
        raise _malformed(0, "", "no part at all")
    return files


def _mode(header: dict) -> int:
    return int(header.get("mode", 0)) & 0o777 or 0o644


def part(boundary: str, kind: str, data: bytes | dict, is_quoted: bool = False) -> bytes:
    """One part of a download."""
    content = "application/octet-stream" if isinstance(data, bytes) else "application/json"
    name = f'"{kind}"' if is_quoted else kind
    head = f"--{boundary}\r\nContent-Disposition: attachment; name={name}\r\nContent-Type: {content}\r\n\r\n".encode()
    return head + (data if isinstance(data, bytes) else json_write(data)) + b"\r\n"


def closing(boundary: str) -> bytes:
    return f"--{boundary}--\r\n".encode()
