"""The attention that never writes its matrix out gives what the package's gives."""

import pytest
import torch
from segment_anything.modeling.image_encoder import Attention

from pairwright.tasks.models.sam.attention import attend, fuse_attention
from tests.fixtures.sam_checkpoints import GRID, SIDE, make_sam


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("rows", "columns", "dimension", "heads"), [(12, 12, 48, 3), (7, 10, 40, 2), (1, 1, 8, 1)])
def test_results_are_the_packages(rows, columns, dimension, heads):
    torch.manual_seed(0)
    attention = Attention(dimension, heads, use_rel_pos=True, input_size=(rows, columns))
    patches = 2 * torch.randn(3, rows, columns, dimension)
    with torch.no_grad():
        attention.rel_pos_h.normal_()
        attention.rel_pos_w.normal_()
        wanted = attention(patches)
        torch.testing.assert_close(attend(attention, patches), wanted, atol=2e-6, rtol=1e-5)
        # The check above can fail: relative positions matter here.
        attention.rel_pos_w.zero_()
        assert columns == 1 or (attend(attention, patches) - wanted).abs().max() > 0.01


def test_the_encoder_is_the_same_with_it():
    encoder = make_sam().image_encoder
    images = torch.randn(2, 3, SIDE, SIDE)
    with torch.no_grad():
        wanted = encoder(images)
        fuse_attention(encoder)
        got = encoder(images)
    torch.testing.assert_close(got, wanted, atol=1e-4, rtol=1e-4)


def test_only_blocks_without_windows_are_changed():
    encoder = make_sam().image_encoder
    calls = []
    for block in encoder.blocks:
        block.attn.qkv.register_forward_hook(lambda _, given, __: calls.append(tuple(given[0].shape)))
    fuse_attention(encoder)
    assert [block.attn.forward.__class__.__name__ for block in encoder.blocks] == ["method", "partial"]
    with torch.no_grad():
        encoder(torch.zeros(1, 3, SIDE, SIDE))
    assert calls == [(16, 5, 5, 24), (1, GRID, GRID, 24)]  # 16 windows of 5 x 5 hold 16 x 16 patches, and padding
