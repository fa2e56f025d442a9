"""Hostile files for calipers' parsers: `python -m tests.data.file_mutants 100000`."""

import io
import json
import random
import struct
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np

from calipers._files import FileError, npy, npz, safetensors

HOSTILE = [
    *(b"\xff" * 8, b"\0" * 8, b"\xff\xff\xff\x7f", b"9" * 30, b"-1", b"[" * 9, b"(" * 9, b'"'),
    *(
        b"}",
        b"|O",
        b"'V2147483647'",
        b"1e999",
        b"True",
        b"\\ud800",
        b"\x1b[2J",
        b"#",
        b"__import__",
    ),
]
COUNTS = [0, 1, 2, 3, -1, 2**31, 2**32, 2**60, 2**63, 2**64, 10**40, True, None, "3", 1.5, [2], {}]
DESCRS = [
    *("<f8", "|O", "O8", ">i4", "<U3", "|S0", "|V0", "<U2147483647", "<M8[s]", "<M8[x]", "f8,f8"),
    *("(2,)f8", "", "<f3", "float64", "object", [], [("a", "<f8")], [("a", "|O")], [("", "|V4")]),
    *([("a", "<f8", (2**40,))], [("a", [("b", [("c", "<i2")])])], [("a", "<f8"), ("a", "<f8")]),
    *([(("t", "a"), "<f8")], [("a",)], [3], ("<f8", (2,)), ("<f8", -1), {}, None, 3, b"<f8"),
]


def saved(*arrays, save=np.save, **members):
    file = io.BytesIO()
    save(file, *arrays, **members)
    return file.getvalue()


def tensors(header, data):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


MEMBERS = {"x": np.arange(6.0), "y": np.ones((2, 2), "f4")}
WHOLE = {
    npy: [
        saved(np.arange(6.0).reshape(2, 3)),
        saved(np.asfortranarray(np.ones((2, 3), "c8"))),
        saved(np.zeros(2, "i4,f8")),
        saved(np.array(["ab"])),
    ],
    npz: [saved(save=save, **MEMBERS) for save in (np.savez, np.savez_compressed)],
    safetensors: [
        tensors(
            {
                "__metadata__": {"a": "b"},
                "w": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]},
                "x": {"dtype": "BF16", "shape": [3], "data_offsets": [16, 22]},
            },
            bytes(22),
        )
    ],
}


def mutated(data, choose):
    """Change some bytes of a file, wherever."""
    data = bytearray(data)
    for _ in range(choose.randint(1, 4)):
        place = choose.randrange(len(data) + 1)
        match choose.randrange(6):
            case 0:
                del data[place:]
            case 1:
                del data[place : place + choose.randrange(1, 9)]
            case 2:
                text = choose.choice(HOSTILE)
                data[place : place + len(text)] = text
            case 3:
                data[place:place] = choose.choice(HOSTILE)
            case 4:
                other = choose.randrange(len(data) + 1)
                data[place:place] = data[other : other + choose.randrange(1, 40)]
            case 5 if data:
                data[place % len(data)] ^= 1 << choose.randrange(8)
    return bytes(data)


def forged_npy(choose):
    """Write a header that is well-formed and says what it should not."""
    shape = tuple(choose.choice(COUNTS) for _ in range(choose.randrange(4)))
    header = {
        "descr": choose.choice(DESCRS),
        "fortran_order": choose.choice([False, True, 0, None]),
        "shape": choose.choice([shape, list(shape), 3]),
    }
    if choose.random() < 0.1:
        header[choose.choice(["extra", 3])] = None
    text = repr(header).encode("latin1", "replace") + b"\n"
    if choose.random() < 0.1:
        text = choose.choice([b"(" * 5000, b"-" * 9000 + b"1", b"[" * 9000, b"{" + b"1:" * 3000])
    version = choose.choice([1, 2, 3])
    length = struct.pack("<H" if version == 1 else "<I", len(text))
    data = b"\x93NUMPY" + bytes([version, 0]) + length + text
    return data + bytes(choose.choice([0, 8, 48, 64]))


def forged_npz(choose):
    """Pack forged members well, and some of what tells of them badly."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in ("x.npy", "x", "\x1b[2J.npy")[: choose.randint(1, 3)]:
            member = forged_npy(choose) if choose.random() < 0.5 else WHOLE[npy][0]
            method = choose.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
            archive.writestr(name, member, method)
    data = bytearray(file.getvalue())
    central = data.find(b"PK\1\2")
    # Flags, method, checksum, sizes, lengths of names, and the offset of the member.
    for _ in range(choose.randrange(3)):
        place = central + choose.choice([8, 10, 16, 20, 24, 28, 30, 32, 42])
        data[place : place + 2] = choose.choice(HOSTILE)[:2]
    return bytes(data)


def forged_tensors(choose):
    """Write a header of JSON that says what it should not."""
    header = {}
    for name in ("a", "b", "__metadata__")[: choose.randint(1, 3)]:
        header[name] = {
            "dtype": choose.choice(["F32", "BF16", "F4", "f32", 3, None]),
            "shape": choose.choice([[choose.choice(COUNTS)], [2, 2], [], 3, None]),
            "data_offsets": choose.choice([[0, 16], [16, 32], [8, 4], [choose.choice(COUNTS)] * 2]),
        }
    text = json.dumps(header).encode()
    if choose.random() < 0.1:
        text = choose.choice([b'{"a":' * 9999, b"[" * 9999, b"9" * 9999, b'{"a":1,"a":1}', b"NaN"])
    return tensors(text, bytes(choose.choice([0, 16, 32])))


FORGED = {npy: forged_npy, npz: forged_npz, safetensors: forged_tensors}


def read(reader, data, path):
    """Read all of a file; tell whether it is one."""
    try:
        found = reader.parsed(io.BytesIO(data), str(path))
        path.write_bytes(data)
        for entry in found.arrays.values():
            x = entry.load()
            assert (x.shape, x.dtype) == (entry.shape, entry.dtype)
    except FileError:
        return False
    return True


def main(count):
    import resource  # which not all systems have

    choose = random.Random(0)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + (64 << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))
    shares = {npy: 2, npz: 1, safetensors: 1}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "mutant")
        for reader, share in shares.items():
            whole = 0
            number = count * share // sum(shares.values())
            for i in range(number):
                source = choose.choice(WHOLE[reader])
                data = FORGED[reader](choose) if i % 2 else mutated(source, choose)
                whole += read(reader, data, path)
            print(reader.__name__, number, whole)


if __name__ == "__main__":
    main(int(sys.argv[1]))
