"""Only what pyproject.toml cannot say: optional extension modules. Without a compiler the package installs all the same."""

import zlib
from pathlib import Path

from setuptools import Extension, setup

FOLDER = Path("src/sordino/native")
SUFFIXES = (".c", ".h", ".inc")  # as in sordino.native


def native(name: str, *more: str) -> Extension:
    sources = [f"{FOLDER}/{each}.c" for each in (name, *more)]
    # Which source it was made from, so that a library of another version is not called (`sordino.native`).
    files = [file for file in sorted(FOLDER.iterdir()) if file.suffix in SUFFIXES]
    text = b"".join(file.read_bytes() for file in files)
    return Extension(
        f"sordino.native._{name}",
        sources,
        depends=[str(file) for file in files],  # all of them are in the checksum
        define_macros=[("SORDINO_SOURCE", f"{zlib.crc32(text)}u")],
        extra_compile_args=["-O3", "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi"],
        optional=True,
    )


KERNELS = ("block_plain", "block_v3", "block_v4", "lstm", "product", "product_v3", "product_v4")
setup(ext_modules=[native("kernels", *KERNELS), native("passes")])
