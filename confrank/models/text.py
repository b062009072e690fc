"""Networks for texts, trained from scratch: numbers of words [n, length] -> logits [n, K].

The number 0 pads a text (`confrank.data.vocabulary`); no layer sees it, so a text gives the same logits with any
padding. For texts, `in_channels` is the number of numbers that words can have.
"""

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from confrank.models.network import Features, Network

PADDING = 0
WIDTH, DEPTH, NUM_HEADS = 64, 2, 4


class TextNetwork(Network):
    """A vector for each word, blocks that relate words (vectors and mask -> vectors), and the mean over the words."""

    def __init__(
        self,
        num_words: int,
        width: int,
        blocks: Iterable[nn.Module],
        neck: nn.Module,
        num_classes: int,
        variance_head: bool = False,
    ) -> None:
        super().__init__(blocks, neck, width, num_classes, variance_head)
        self.embedding = nn.Embedding(num_words, width, padding_idx=PADDING)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        with torch.no_grad():
            self.embedding.weight[PADDING].zero_()

    def forward(self, tokens: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """Logits [n, K] of numbers of words [n, length], and with `variance_head` the log-variance [n, K]."""
        return self.classify(self.features(tokens).penultimate)

    def features(self, tokens: Tensor) -> Features:
        """The features that core-set selection uses; `blocks` are means over the words of a text."""
        present = tokens != PADDING
        vectors = self.embedding(tokens)
        if self.blocks:
            vectors = vectors * math.sqrt(vectors.shape[2]) + positions(vectors)
        means = [mean_over_words(vectors, present)]
        for block in self.blocks:
            vectors = block(vectors, present)
            means.append(mean_over_words(vectors, present))
        return Features(self.neck(means[-1]), means)


def mean_over_words(vectors: Tensor, present: Tensor) -> Tensor:
    """Vectors [n, length, d] -> their means over the words that are present [n, length]: [n, d]."""
    weight = present.to(vectors.dtype)
    total = torch.bmm(weight.unsqueeze(1), vectors).squeeze(1)
    return total / weight.sum(dim=1, keepdim=True).clamp_min(1)


def positions(vectors: Tensor) -> Tensor:
    """Sines and cosines of the positions in a text [length, d] (Vaswani et al. 2017); d is even."""
    length, width = vectors.shape[1:]
    position = torch.arange(length, device=vectors.device, dtype=torch.float32)
    rate = torch.exp(torch.arange(0, width, 2, device=vectors.device) * (-math.log(10_000.0) / width))
    angle = position[:, None] * rate
    return torch.cat((angle.sin(), angle.cos()), dim=1).to(vectors.dtype)


class EncoderBlock(nn.Module):
    """Self-attention and a hidden layer, each after a layer norm and added to its input (pre-norm transformer)."""

    def __init__(self, width: int, num_heads: int, rate: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.first_norm, self.second_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention_in, self.attention_out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.hidden = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.dropout = nn.Dropout(rate)

    def forward(self, vectors: Tensor, present: Tensor) -> Tensor:
        """Vectors [n, length, d] and which words are present [n, length] -> vectors [n, length, d]."""
        vectors = vectors + self.dropout(self._attend(self.first_norm(vectors), present))
        changed: Tensor = vectors + self.dropout(self.hidden(self.second_norm(vectors)))
        return changed

    def _attend(self, vectors: Tensor, present: Tensor) -> Tensor:
        n, length, width = vectors.shape
        parts = self.attention_in(vectors).view(n, length, 3, self.num_heads, width // self.num_heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        # A text of padding alone would give NaN: there, every position may be attended to.
        mask = (present | ~present.any(dim=1, keepdim=True))[:, None, None, :]
        attended = scaled_dot_product_attention(query, key, value, attn_mask=mask)
        out: Tensor = self.attention_out(attended.transpose(1, 2).reshape(n, length, width))
        return out


def bag_of_embeddings(
    num_classes: int, *, in_channels: int, dropout: bool = False, variance_head: bool = False
) -> TextNetwork:
    """The mean of the vectors of a text's words, and a linear head; dropout 0.5 of the mean if asked."""
    neck = nn.Dropout(0.5) if dropout else nn.Identity()
    return TextNetwork(in_channels, WIDTH, [], neck, num_classes, variance_head)


def text_encoder(
    num_classes: int, *, in_channels: int, dropout: bool = False, variance_head: bool = False
) -> TextNetwork:
    """A small transformer encoder with dropout 0.1 in its blocks; dropout 0.5 before the head too if asked."""
    blocks = [EncoderBlock(WIDTH, NUM_HEADS, 0.1) for _ in range(DEPTH)]
    neck = nn.Sequential(nn.LayerNorm(WIDTH), *([nn.Dropout(0.5)] if dropout else []))
    return TextNetwork(in_channels, WIDTH, blocks, neck, num_classes, variance_head)
