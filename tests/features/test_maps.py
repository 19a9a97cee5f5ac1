import numpy as np
import pytest
import torch

from sordino.errors import BadInput
from sordino.features import filters, generator, levels
from sordino.features.extractor import _shrunk
from sordino.features.maps import Block, FeatureMap, _cells, pixels


def bank_for(block: Block, shape: tuple[int, int, int]) -> filters.FilterBank:
    pictures = _shrunk(generator.images(30, shape, 0), block.shrink)
    return filters.build(pictures, block.window(shape), block.filters, 0, symmetric=block.mirror)


def plain(block: Block, bank: filters.FilterBank, picture: np.ndarray) -> np.ndarray:
    """The slow, obvious version: every position and filter by itself."""
    x = picture / 255.0
    if block.shrink > 1:
        c, h, w = x.shape
        s = block.shrink
        x = x[:, : h // s * s, : w // s * s].reshape(c, h // s, s, w // s, s).mean(axis=(2, 4))

    def pooled(bank: filters.FilterBank, mirror: bool) -> np.ndarray:
        k = bank.patch
        rows = range(0, x.shape[1] - k[0] + 1, block.stride)
        columns = range(0, x.shape[2] - k[1] + 1, block.stride)
        z = np.empty((len(rows), len(columns), len(bank)))
        for i, r in enumerate(rows):
            for j, c in enumerate(columns):
                patch = filters.normalised(x[:, r : r + k[0], c : c + k[1]].reshape(1, -1), bank.floor)
                z[i, j] = patch[0] @ bank.weights.T + bank.bias
        both = np.stack([np.maximum(z - block.threshold, 0), np.maximum(-z - block.threshold, 0)])
        down, across = _cells(len(rows), block.cells).numpy(), _cells(len(columns), block.cells).numpy()
        out = np.einsum("ar,bc,srcf->sabf", down, across, both)
        return out[:, :, ::-1] if mirror else out

    if not block.mirror:
        return pooled(bank, False).ravel()
    return ((pooled(bank, False) + pooled(bank.mirrored(), True)) / 2).ravel()


@pytest.mark.parametrize(
    "block, shape",
    [
        (Block(7, patch=4, cells=2, threshold=0.5), (3, 12, 11)),
        (Block(5, patch=3, cells=3, stride=2, threshold=0.3, mirror=False), (1, 14, 14)),
        (Block(6, patch=3, cells=2, shrink=2, threshold=0.8), (2, 13, 16)),
        (Block(410, patch=3, cells=1, threshold=0.5), (1, 8, 8)),  # more filters than one piece
    ],
)
def test_the_map_agrees_with_the_plain_one(block: Block, shape: tuple[int, int, int]) -> None:
    bank = bank_for(block, shape)
    pictures = generator.images(3, shape, seed=9)
    fast = FeatureMap(shape, [block], [bank])(pictures)
    for row, picture in zip(fast, pictures):
        assert np.allclose(row, plain(block, bank, picture), atol=2e-5)
    assert fast.min() >= 0 and fast.max() > 0.01


def test_a_mirrored_picture_has_the_same_features() -> None:
    block = Block(20, patch=4, threshold=0.5)
    mapped = FeatureMap((3, 12, 12), [block], [bank_for(block, (3, 12, 12))])
    pictures = generator.images(4, (3, 12, 12), seed=2)
    assert np.allclose(mapped(pictures), mapped(pictures[..., ::-1]), atol=2e-5)
    one_sided = Block(20, patch=4, threshold=0.5, mirror=False)
    mapped = FeatureMap((3, 12, 12), [one_sided], [bank_for(one_sided, (3, 12, 12))])
    assert not np.allclose(mapped(pictures), mapped(pictures[..., ::-1]), atol=1e-2)


def test_bits_do_not_depend_on_company_or_threads() -> None:
    blocks = [Block(30, patch=4, threshold=0.5), Block(10, patch=3, shrink=2)]
    mapped = FeatureMap((3, 12, 12), blocks, [bank_for(block, (3, 12, 12)) for block in blocks])
    pictures = generator.images(37, (3, 12, 12), seed=2)
    together = mapped(pictures)
    assert (mapped(pictures, threads=2) == together).all()
    assert (np.concatenate([mapped(pictures[i : i + 1]) for i in range(37)]) == together).all()
    before = torch.get_num_threads()
    mapped(pictures[:1])
    assert torch.get_num_threads() == before


def test_one_example_alone_decides_its_features() -> None:
    block = Block(10, patch=4)
    mapped = FeatureMap((1, 10, 10), [block], [bank_for(block, (1, 10, 10))])
    pictures = generator.images(5, (1, 10, 10), seed=2)
    changed = pictures.copy()
    changed[2] = 255 - changed[2]
    differ = (mapped(pictures) != mapped(changed)).any(axis=1)
    assert differ.tolist() == [False, False, True, False, False]


def test_signals_are_pictures_of_height_one() -> None:
    block = Block(6, patch=8, cells=4, threshold=0.5, mirror=False)
    bank = filters.build(generator.images(30, (2, 64), 0).reshape(30, 2, 1, 64), (1, 8), 6, 0, symmetric=False)
    features = FeatureMap((2, 64), [block], [bank])(generator.images(3, (2, 64), seed=1))
    assert features.shape == (3, 2 * 6 * 4 + levels.size(2)) and np.isfinite(features).all()
    assert features[:, : 2 * 6 * 4].max() > 0


def test_cells_share_a_border_evenly() -> None:
    # Five positions in two cells: the middle one belongs half to each, (1, 1, 1/2) / 2.5.
    assert np.allclose(_cells(5, 2).numpy(), [[0.4, 0.4, 0.2, 0, 0], [0, 0, 0.2, 0.4, 0.4]])
    assert np.allclose(_cells(9, 4).sum(1).numpy(), 1)


def test_bytes_and_floats_are_the_same_picture() -> None:
    picture = generator.images(1, (1, 4, 4), seed=0)[0]
    assert torch.allclose(pixels(picture), pixels(picture.astype(np.float32) / 255))


def test_the_units_of_a_picture_or_of_a_channel_do_not_reach_filters() -> None:
    picture = generator.images(1, (3, 12, 12), seed=3)[0].astype(np.float32)
    usual = pixels(-1.0 - picture)
    assert torch.allclose(usual, pixels(1e-4 * (-1.0 - picture)), atol=1e-5) and 0.2 < usual.std() < 0.3
    assert usual.isfinite().all() and pixels(np.full((1, 4, 4), 7.0)).eq(0).all()

    block = Block(6, patch=8, cells=1, threshold=0.5, mirror=False)
    bank = filters.build(generator.images(30, (2, 64), 0).reshape(30, 2, 1, 64), (1, 8), 6, 0, symmetric=False)
    mapped, signals = FeatureMap((2, 64), [block], [bank]), np.random.default_rng(0).normal(size=(3, 2, 64))
    other = signals * np.array([[1e-4], [1e3]]) + np.array([[5.0], [-2.0]])
    assert np.allclose(mapped(signals)[:, :12], mapped(other)[:, :12], atol=1e-4)
    assert not np.allclose(mapped(signals)[:, 12:], mapped(other)[:, 12:], atol=0.1)


def test_pictures_that_do_not_fit_are_refused() -> None:
    with pytest.raises(BadInput, match="8 x 8 are too small for these features, which need 14 pixels"):
        Block(5, patch=6, shrink=2).seen((1, 8, 8))
    with pytest.raises(
        BadInput, match="Signals of 8 steps in 3 channels are too short for these features, which need 14 steps"
    ):
        Block(5, patch=6, shrink=2).seen((3, 1, 8))
    block = Block(5, patch=4)
    bank = bank_for(block, (3, 10, 10))
    mapped = FeatureMap((3, 10, 10), [block], [bank])
    with pytest.raises(BadInput, match=r"shape \(3, 10, 10\), not \(1, 10, 10\)"):
        mapped(np.zeros((2, 1, 10, 10), np.uint8))
    with pytest.raises(BadInput, match="add the channel axis"):
        FeatureMap((28,), [block], [bank])
    with pytest.raises(BadInput, match="5 filters for 3 channels"):
        FeatureMap((1, 10, 10), [block], [bank])


def test_soft_cells_by_hand() -> None:
    """Six positions, two cells: (1, 1, 1, 0, 0, 0) moved by -1, 0 and 1 and averaged is (1, 1, 2/3, 1/3, 0, 0)."""
    assert np.allclose(_cells(6, 2, 1)[0], np.array([1, 1, 2 / 3, 1 / 3, 0, 0]) / 3)
    assert np.array_equal(_cells(7, 3, 0), _cells(7, 3))
    assert np.allclose(_cells(9, 4, 3).sum(1), 1)


def test_soft_cells_are_averages_over_moved_pictures() -> None:
    rng = np.random.default_rng(0)
    picture = np.full((1, 16, 16), 0.5, np.float32)
    picture[:, 5:11, 5:11] = rng.random((1, 6, 6))
    pictures = (255 * rng.random((50, 1, 16, 16))).astype(np.uint8)
    bank = filters.build(pictures, (4, 4), 5, 0, symmetric=False)
    hard, soft = (FeatureMap((1, 16, 16), (Block(5, 4, cells=2, mirror=False, soft=s),), [bank]) for s in (0, 1))
    moved = [np.roll(picture, (i, j), (1, 2)) for i in (-1, 0, 1) for j in (-1, 0, 1)]
    assert np.allclose(soft(picture[None])[0], hard(np.stack(moved)).mean(0), atol=1e-5)
    with pytest.raises(BadInput, match="soft"):
        Block(5, soft=-1)
