"""Only what pyproject.toml cannot say: an optional extension module. Without a compiler the package installs all the same."""

import zlib
from pathlib import Path

from setuptools import Extension, setup


def native(name: str) -> Extension:
    source = f"src/sordino/native/{name}.c"
    return Extension(
        f"sordino.native._{name}",
        [source],
        # Which source it was made from, so that a library of another version is not called (`sordino.native`).
        define_macros=[("SORDINO_SOURCE", f"{zlib.crc32(Path(source).read_bytes())}u")],
        extra_compile_args=["-O3", "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi"],
        optional=True,
    )


setup(ext_modules=[native("kernels"), native("passes")])
