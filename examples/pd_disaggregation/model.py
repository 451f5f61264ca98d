# SPDX-License-Identifier: Apache-2.0
"""A small transformer with random weights, the same in every process, over a paged cache of keys and values.

It is in the memory of a GPU, where torch has one.
"""
import math

import torch

LAYERS, HEADS, WIDTH, VOCABULARY, PAGE = 6, 4, 32, 256, 16  # PAGE: tokens of a page
DIM = HEADS * WIDTH
torch.set_num_threads(1)  # so that every process rounds alike
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE != "cpu":
    torch.set_default_device(DEVICE)


def weights():
    random = torch.Generator(DEVICE).manual_seed(1)

    def matrix(rows, columns):
        return torch.randn(rows, columns, generator=random) / math.sqrt(rows)

    layers = [
        (matrix(DIM, 3 * DIM), matrix(DIM, DIM), matrix(DIM, 4 * DIM), matrix(4 * DIM, DIM))
        for _ in range(LAYERS)
    ]
    return layers, torch.randn(VOCABULARY, DIM, generator=random)


def new_cache(pages):
    return torch.zeros(LAYERS, pages, 2, PAGE, HEADS, WIDTH)  # 2: keys and values


def norm(x):
    return torch.nn.functional.layer_norm(x, (DIM,))


def attend(q, keys, values, positions):
    """Each token looks at those up to itself."""
    scores = torch.einsum("qhw,khw->hqk", q, keys) / math.sqrt(WIDTH)
    scores.masked_fill_(torch.arange(len(keys)) > positions[:, None], float("-inf"))
    return torch.einsum("hqk,khw->qhw", scores.softmax(-1), values).reshape(len(q), DIM)


@torch.no_grad()
def forward(model, cache, pages, tokens, start, filled=lambda layer: None, needs=lambda layer: None):
    """The next token. Keys and values of `tokens`, which begin at `start`, go to `pages` of the cache; filled(layer)
    is called as soon as those of a layer are there, before the rest of this layer and all later ones. needs(layer) is
    called before the cache of a layer is used."""
    layers, embedding = model
    n, positions = len(tokens), torch.arange(start, start + len(tokens))
    page, at, end = torch.tensor(pages)[positions // PAGE], positions % PAGE, start + len(tokens)
    x = embedding[torch.tensor(tokens)] + torch.sin(positions[:, None] / torch.arange(1, DIM + 1))
    for layer, (qkv, out, up, down) in enumerate(layers):
        q, k, v = (norm(x) @ qkv).view(n, 3, HEADS, WIDTH).unbind(1)
        needs(layer)
        cache[layer, page, 0, at], cache[layer, page, 1, at] = k, v
        filled(layer)
        keys, values = (cache[layer, pages, which].reshape(-1, HEADS, WIDTH)[:end] for which in (0, 1))
        x = x + attend(q, keys, values, positions) @ out
        x = x + torch.nn.functional.gelu(norm(x) @ up) @ down
    return int((norm(x[-1]) @ embedding.T).argmax())


def generate(model, cache, pages, token, start, count, needs=lambda layer: None):
    """Answers token by token, from the last of the prompt on."""
    for position in range(start, start + count):
        token = forward(model, cache, pages, [token], position, needs=needs)
        yield token
