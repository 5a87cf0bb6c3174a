# The C ABI for tests: ctypes structs read from the header itself, so that they cannot drift from it.
from __future__ import annotations

import ctypes
import functools
import os
import re
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
HEADER = ROOT / "include/tilewise/tilewise.h"

SCALARS = {
    "int32_t": ctypes.c_int32,
    "uint32_t": ctypes.c_uint32,
    "int64_t": ctypes.c_int64,
    "uint64_t": ctypes.c_uint64,
    "float": ctypes.c_float,
}


def header_text() -> str:
    text = re.sub(r"/\*.*?\*/", " ", HEADER.read_text(), flags=re.S)
    return re.sub(r"^\s*#.*$", "", text, flags=re.M)


def parse_constants(text: str) -> dict[str, int]:
    constants: dict[str, int] = {}
    for body in re.findall(r"\benum\s*\{(.*?)\}", text, flags=re.S):
        for entry in filter(None, (part.strip() for part in body.split(","))):
            name, value = (side.strip() for side in entry.split("="))
            left, _, shift = value.partition("<<")
            constants[name] = int(left) << int(shift or 0)
    return constants


def parse_field(declaration: str, scalars: dict[str, type]) -> list[tuple[str, type]]:
    """Fields of one declaration such as `const void *q, *k` or `int64_t a, b`."""
    match = re.fullmatch(r"(?:const\s+)?(\w+)\s*(.*)", declaration.strip(), flags=re.S)
    if match is None:
        raise ValueError(f"cannot read the field {declaration!r}")
    base, rest = match.groups()
    fields = []
    for declarator in rest.split(","):
        name = declarator.strip()
        pointer = name.startswith("*")
        name = name.lstrip("* ")
        fields.append((name, ctypes.c_void_p if pointer else scalars[base]))
    return fields


def parse_structs(text: str) -> dict[str, type[ctypes.Structure]]:
    scalars = dict(SCALARS)
    for base, name in re.findall(r"typedef\s+(\w+)\s+(\w+)\s*;", text):
        if base in scalars:
            scalars[name] = scalars[base]
    for name in re.findall(r"typedef\s+void\s*\(\*\s*(\w+)\)", text):
        scalars[name] = ctypes.c_void_p
    structs = {}
    for name, body in re.findall(
        r"typedef\s+struct\s+(\w+)\s*\{(.*?)\}\s*\1\s*;", text, flags=re.S
    ):
        declarations = filter(None, (part.strip() for part in body.split(";")))
        fields = [field for part in declarations for field in parse_field(part, scalars)]
        structs[name] = type(name, (ctypes.Structure,), {"_fields_": fields})
    return structs


_TEXT = header_text()
CONSTANTS = parse_constants(_TEXT)
STRUCTS = parse_structs(_TEXT)


def make(struct: str, **fields) -> ctypes.Structure:
    """A zeroed struct with its size set; arrays and structs become pointers and are kept alive by it."""
    result = STRUCTS[struct]()
    if hasattr(result, "struct_size"):
        result.struct_size = ctypes.sizeof(result)
    result.kept = fields
    for name, value in fields.items():
        if isinstance(value, np.ndarray):
            value = value.ctypes.data
        elif isinstance(value, ctypes.Structure):
            value = ctypes.addressof(value)
        if name not in dict(result._fields_):
            raise AttributeError(f"{struct} has no field {name}")
        setattr(result, name, value)
    return result


@functools.cache
def library() -> ctypes.CDLL:
    path = Path(os.environ.get("TILEWISE_LIBRARY", ROOT / "build/libtilewise.so"))
    if not path.exists():
        raise FileNotFoundError(f"{path} is not there: run `make build`, or set TILEWISE_LIBRARY")
    lib = ctypes.CDLL(str(path))
    lib.tw_last_error.restype = ctypes.c_char_p
    return lib


def call(function: str, args: ctypes.Structure) -> None:
    """Calls `function(&args)`; any other status than TW_OK is an error with the library's text."""
    status = getattr(library(), function)(ctypes.byref(args))
    if status != CONSTANTS["TW_OK"]:
        raise RuntimeError(f"{function}: status {status}: {library().tw_last_error().decode()}")
