"""Only what pyproject.toml cannot say: an optional extension module. Without a compiler the package installs all the same."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "sordino.native._kernels",
            ["src/sordino/native/kernels.c"],
            extra_compile_args=["-O3", "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi"],
            optional=True,
        )
    ]
)
