"""The next-character network of LEAF (Caldas et al. 2018) and DP-FedACN: embedding of 8, two LSTM layers of 256."""

from __future__ import annotations

from torch import Tensor, nn


class CharLSTM(nn.Module):
    """Characters in (integers of shape [batch, length], 80 of them in the papers), scores of the next character out."""

    def __init__(self, vocabulary: int, embedding: int = 8, hidden: int = 256, layers: int = 2) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, embedding)
        self.lstm = nn.LSTM(embedding, hidden, num_layers=layers, batch_first=True)
        self.out = nn.Linear(hidden, vocabulary)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.lstm(self.embed(x))
        return self.out(states[:, -1])
