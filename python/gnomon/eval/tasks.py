# SPDX-License-Identifier: Apache-2.0
"""What a model reads, and what it is asked on the way.

Loss alone can stay flat in a model that no longer sees far: local words predict the next one well enough. So it is also
asked for things that stand only at a distance:

- repeat: a phrase of the text again, given its first tokens. The loss of the rest, against the loss at first sight.
- passkey: numbers hidden in filler text (Mohtashami and Jaggi 2023, Landmark Attention, arXiv:2305.16300, section 4.2),
  several in one context, each under the name of a city. Hits, and the loss per digit (guessing costs ln 10 = 2.30).

Questions are asked at the trained length and at the end, and are not kept in the context. Everything follows from the seed.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Callable

import torch

from .errors import UsageError

TASKS = ("loss", "passkey", "repeat")

#: repeat: tokens shown as a cue, tokens asked for, phrases asked for at each distance.
CUE, ASKED, PHRASES = 8, 24, 6
#: passkey: numbers hidden at each distance, and their digits.
KEYS, DIGITS = 4, 5
#: The shortest distance in tokens; each next one is 4 times as long, and the last reaches back to the beginning.
SHORTEST = 512

FILLER = ("The grass is green.", "The sky is blue.", "The sun is yellow.", "Here we go.", "There and back again.")
NEEDLE = "The pass key of {city} is {key}. Remember it: {key} is the pass key of {city}."
QUESTION = "\nWhat is the pass key of {city}? The pass key of {city} is"
_NAMES = """
    Paris London Rome Berlin Tokyo Cairo Moscow Madrid Vienna Dublin Oslo Lima Athens Delhi Boston Denver Lisbon Prague
    Warsaw Geneva Milan Naples Hamburg Munich Seville Havana Bogota Nairobi Lagos Dakar Tunis Baghdad Tehran Kabul Mumbai
    Bangkok Hanoi Manila Beijing Shanghai Seoul Osaka Sydney Toronto Chicago Dallas Houston Seattle Miami Phoenix
"""
CITIES = _NAMES.split()
PREFIXES = ("", "New ", "Old ")


@dataclasses.dataclass(frozen=True)
class Question:
    """Tokens that follow the context; the last `asked` of them are scored."""

    ids: torch.Tensor
    asked: int
    distance: int  # nominal: how far back the answer stands, up to a quarter less
    units: int  # what the summed loss is divided by: tokens, or digits
    first: int | None = None  # where the scored tokens stand in the text, if their first loss matters


@dataclasses.dataclass(frozen=True)
class Reading:
    """A sequence to read, and the questions to ask once that many tokens of it have been read."""

    task: str  # "repeat" (or just "loss", without questions), "passkey"
    ids: torch.Tensor
    questions: dict[int, list[Question]]


def asking_positions(tokens: int, trained: int | None) -> list[int]:
    """Where questions are asked: at the trained length, if it is passed, and at the end."""
    return [trained, tokens] if trained and trained < tokens else [tokens]


def distances(asked_at: int) -> list[int]:
    """Nominal distances in a context of this length; the last is the whole of it."""
    octaves = (SHORTEST * 4**i for i in range(32))
    return [*itertools.takewhile(lambda distance: 1.5 * distance <= asked_at, octaves), asked_at]


def text_reading(ids: torch.Tensor) -> Reading:
    """The text, nothing asked."""
    return Reading("loss", ids, {})


def repeat_reading(ids: torch.Tensor, positions: list[int], seed: int) -> Reading:
    """The text, and phrases of it asked for at `positions`. Raises UsageError when the text is too short for that."""
    length = CUE + ASKED
    if min(positions) < 2 * length:
        raise UsageError(f"the task repeat needs at least {2 * length} tokens to look back on, got {min(positions)}")
    chance = random.Random(f"repeat {seed}")
    questions = {}
    for asked_at in positions:
        questions[asked_at] = []
        for distance in distances(asked_at):
            for _ in range(PHRASES):
                start = min(asked_at - distance + chance.randrange(distance // 4), asked_at - length)
                phrase = ids[start : start + length]
                questions[asked_at].append(Question(phrase, ASKED, distance, ASKED, first=start + CUE))
    return Reading("repeat", ids, questions)


def passkey_reading(encode: Callable[[str], list[int]], tokens: int, positions: list[int], seed: int) -> Reading:
    """Filler text of `tokens` tokens with numbers hidden in it, asked for at `positions`; `encode` makes tokens.

    Raises UsageError when the filler is too short to hide them.
    """
    chance = random.Random(f"passkey {seed}")
    cities = iter([prefix + city for prefix in PREFIXES for city in chance.sample(CITIES, len(CITIES))])
    needles: list[tuple[int, int, list[int]]] = []  # wanted start, where it must end, tokens
    questions: dict[int, list[Question]] = {}
    for asked_at in positions:
        questions[asked_at] = []
        for distance in distances(asked_at):
            for number in range(KEYS):
                city, key = next(cities), "".join(chance.choices("0123456789", k=DIGITS))
                start = asked_at - distance + number * distance // (4 * KEYS)
                needles.append((start, asked_at, encode(" " + NEEDLE.format(city=city, key=key))))
                answer = encode(" " + key)
                ids = torch.tensor(encode(QUESTION.format(city=city)) + answer)
                questions[asked_at].append(Question(ids, len(answer), distance, DIGITS))
    filler = [encode(" " + sentence) for sentence in FILLER]
    return Reading("passkey", torch.tensor(_hide(needles, filler, tokens)), questions)


def _hide(needles: list[tuple[int, int, list[int]]], filler: list[list[int]], tokens: int) -> list[int]:
    """Sentences of filler, over and over, with the needles at their wanted starts (a sentence earlier at most) or right
    after a needle that stands there already."""
    ids: list[int] = []
    sentences = itertools.cycle(filler)
    sentence = next(sentences)
    for start, end, needle in sorted(needles):
        while len(ids) + len(sentence) <= start:
            ids += sentence
            sentence = next(sentences)
        ids += needle
        if len(ids) > end:
            raise UsageError(f"the task passkey has no room for its numbers in {end} tokens: give more --tokens")
    while len(ids) < tokens:
        ids += sentence
        sentence = next(sentences)
    return ids[:tokens]
