"""The next-character network of LEAF (Caldas et al. 2018) and DP-FedACN: embedding of 8, two LSTM layers of 256.

LEAF predicts the character after the last one. DP-FedACN's dense layer has the size 80 x 90, beside an embedding of 80 x 8 and
layers of 80 x 256: a prediction of 90 classes at each of the 80 positions.
"""

from __future__ import annotations

from torch import Tensor, nn


class CharLSTM(nn.Module):
    """Characters in (integers of shape [batch, length], 80 of them in the papers), scores of the next character out.

    With `every`, scores of the next character at every position: [batch, length, vocabulary].
    """

    def __init__(
        self, vocabulary: int, embedding: int = 8, hidden: int = 256, layers: int = 2, every: bool = False
    ) -> None:
        super().__init__()
        self.every = every
        self.embed = nn.Embedding(vocabulary, embedding)
        self.lstm = nn.LSTM(embedding, hidden, num_layers=layers, batch_first=True)
        self.out = nn.Linear(hidden, vocabulary)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.lstm(self.embed(x))
        return self.out(states if self.every else states[:, -1])
