"""Tables as text."""

from __future__ import annotations

from pathlib import Path

from vmcr2.data import DataError, from_table

DOCUMENTED = (DataError,)


def seeds() -> list[bytes]:
    rows = "".join(f"{n},{'red' if n % 2 else 'blue'},2020-01-{n % 28 + 1:02},{n % 3}\n" for n in range(30))
    return [
        f"size,colour,day,label\n{rows}".encode(),
        b"a;b;y\n" + b"1,5;x;0\n2,5;;1\n" * 10,
        b'"a ""b""",c,class\n' + b'"1\n2",3,x\n,4,y\n' * 8,
        b"\xef\xbb\xbf" + b"1\t2\t0\n3\t4\t1\n" * 9,
    ]


def run(data: bytes, folder: Path) -> None:
    (folder / "x.csv").write_bytes(data)
    try:
        from_table(folder / "x.csv")
    except DataError:
        from_table(folder / "x.csv", "2")
