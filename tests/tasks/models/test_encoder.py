"""What is not computed of a network changes nothing of what is read of it."""

import pytest
import torch

from pairwright.tasks.models.encoder import keep_class_token


class Layer(torch.nn.Module):
    """A transformer layer's second half."""

    def __init__(self):
        super().__init__()
        self.norm, self.linear, self.seen = torch.nn.LayerNorm(8), torch.nn.Linear(8, 8), None

    def forward(self, tokens):
        given = self.norm(tokens)
        self.seen = given.shape
        return tokens + self.linear(given)


@torch.inference_mode()
def test_only_the_class_token_goes_through_the_last_layers_network():
    layer, tokens = Layer(), torch.randn(3, 5, 8, generator=torch.Generator().manual_seed(0))
    whole = layer(tokens)
    keep_class_token(layer.norm)
    made = layer(tokens)
    assert layer.seen == (3, 1, 8)
    assert made[:, 0].numpy() == pytest.approx(whole[:, 0].numpy(), abs=1e-6)
    assert not torch.allclose(made[:, 1:], whole[:, 1:])
