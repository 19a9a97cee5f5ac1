"""Only what pyproject.toml cannot say: an optional extension module. Without a compiler the package installs all the same."""

import zlib
from pathlib import Path

from setuptools import Extension, setup

KERNELS = "src/sordino/native/kernels.c"

setup(
    ext_modules=[
        Extension(
            "sordino.native._kernels",
            [KERNELS],
            # Which source it was made from, so that kernels of another version are not called (`sordino.native`).
            define_macros=[("SORDINO_SOURCE", f"{zlib.crc32(Path(KERNELS).read_bytes())}u")],
            extra_compile_args=["-O3", "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi"],
            optional=True,
        )
    ]
)
