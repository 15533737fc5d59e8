"""The two packets of the MySQL protocol that a session of `hot_row` needs once it is connected.

PyMySQL opens the connections. It would spend more processor time on each statement than the server
does, so that after that a session sends one packet that never changes, and reads from a reply only
whether it is an OK or an error, and which one.
"""

from __future__ import annotations

from firn_lab.errors import LabError

HEADER_BYTES = 4
_COM_QUERY = b"\x03"
_OK, _ERROR = 0x00, 0xFF


def query_packet(statement: str) -> bytes:
    """The packet that has the server run a statement."""
    body = _COM_QUERY + statement.encode()
    # Three bytes of length, and the packet's number within its statement.
    return len(body).to_bytes(3, "little") + b"\0" + body


def reply_error(received: bytes) -> int | None:
    """The error number of the first packet of a reply, 0 for OK; None if a part is missing.

    Raises LabError for any other packet, such as the rows of a result.
    """
    if len(received) < HEADER_BYTES:
        return None
    length = int.from_bytes(received[:3], "little")
    body = received[HEADER_BYTES : HEADER_BYTES + length]
    if len(body) < length:
        return None
    if body[:1] == bytes([_OK]):
        return 0
    if body[:1] == bytes([_ERROR]) and length >= 3:
        return int.from_bytes(body[1:3], "little")
    raise LabError(f"the server answered an update with {body[:16]!r}")
