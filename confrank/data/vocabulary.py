"""Words of a text as numbers: 0 pads a short text, 1 is an unknown word, the words of a vocabulary follow."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

PADDING, UNKNOWN, FIRST_WORD = 0, 1, 2
# Each of these characters is a word: scripts without spaces between words, and emoji.
SINGLE = (
    "\u3005-\u3007\u3041-\u309f\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han, Hiragana
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    "\u2600-\u27bf\u2b00-\u2bff\U0001f300-\U0001faff"  # emoji
)
# Vowel signs and accents belong to the letter before them; \w does not match them.
MARKS = "".join(chr(code) for code in range(0x300, 0xFE00) if unicodedata.category(chr(code)).startswith("M"))
LETTERS = rf"[^\W{SINGLE}]+(?:[{MARKS}]+[^\W{SINGLE}]*)*"
WORD = re.compile(rf"[{SINGLE}][{MARKS}]*|{LETTERS}(?:'{LETTERS})*")


def words_of(text: str) -> list[str]:
    """The words of a text in lower case: letters, digits and underscores, with apostrophes inside a word.

    Where a script has no spaces between words, each character is a word; so is each emoji.

    >>> words_of("Don't PANIC: 42 times!"), words_of("猫が好き😀")
    (["don't", 'panic', '42', 'times'], ['猫', 'が', '好', 'き', '😀'])
    """
    # NFKC: an accent, or a wide letter as in Japanese texts, is the same character in whichever way it is written.
    return WORD.findall(unicodedata.normalize("NFKC", text).replace("\u2019", "'").lower())


def count_words(texts: Iterable[str], length: int) -> tuple[str, ...]:
    """All words among the first `length` of each text, the most frequent first, equals in alphabetical order.

    >>> count_words(["the cat", "the dog"], length=2)
    ('the', 'cat', 'dog')
    """
    counts = Counter(word for text in texts for word in words_of(text)[:length])
    return tuple(sorted(counts, key=lambda word: (-counts[word], word)))


def encode(texts: Sequence[str], vocabulary: Sequence[str], length: int) -> NDArray[np.int32]:
    """The first `length` words of each text as numbers, padded at the end; a text without words is one unknown word.

    >>> encode(["the cat sat", "?"], ["the", "cat"], length=4).tolist()
    [[2, 3, 1, 0], [1, 0, 0, 0]]
    """
    number_of = {word: number for number, word in enumerate(vocabulary, FIRST_WORD)}
    tokens = np.full((len(texts), length), PADDING, dtype=np.int32)
    for row, text in zip(tokens, texts, strict=True):
        numbers = [number_of.get(word, UNKNOWN) for word in words_of(text)[:length]] or [UNKNOWN]
        row[: len(numbers)] = numbers
    return tokens


def decode(tokens: Iterable[int], vocabulary: Sequence[str]) -> str:
    """The words that the network sees, with … for an unknown one.

    >>> decode([2, 3, 1, 0], ["the", "cat"])
    'the cat …'
    """
    names = ["", "…", *vocabulary]
    return " ".join(names[number] for number in tokens if number != PADDING)


def renumbered(tokens: NDArray[np.int32], vocabulary: Sequence[str], other: Sequence[str]) -> NDArray[np.int32]:
    """Tokens of one vocabulary as those of another; words that it does not have become unknown.

    >>> renumbered(np.array([[2, 3, 0]]), ["the", "cat"], ["cat"]).tolist()
    [[1, 2, 0]]
    """
    number_of = {word: number for number, word in enumerate(other, FIRST_WORD)}
    numbers = [PADDING, UNKNOWN, *(number_of.get(word, UNKNOWN) for word in vocabulary)]
    return np.array(numbers, dtype=np.int32)[tokens]


def refit(
    train: NDArray[np.int32], vocabulary: Sequence[str], size: int
) -> tuple[tuple[str, ...], NDArray[np.int32]]:
    """The `size` most frequent words of the training tokens, and the new number of each old one.

    Words that do not occur there, or are too rare, become unknown.

    >>> refit(np.array([[3, 3, 2]], dtype=np.int32), ["the", "cat", "dog"], size=1)
    (('cat',), array([0, 1, 1, 2, 1], dtype=int32))
    """
    counts = np.bincount(train.ravel(), minlength=FIRST_WORD + len(vocabulary))[FIRST_WORD:].tolist()
    present = [number for number, count in enumerate(counts) if count]
    kept = sorted(present, key=lambda number: (-counts[number], vocabulary[number]))[:size]
    renumbered = np.full(FIRST_WORD + len(vocabulary), UNKNOWN, dtype=np.int32)
    renumbered[PADDING] = PADDING
    renumbered[np.array(kept, dtype=np.int64) + FIRST_WORD] = np.arange(FIRST_WORD, FIRST_WORD + len(kept))
    return tuple(vocabulary[number] for number in kept), renumbered
