# SPDX-License-Identifier: Apache-2.0
"""Loss by position of a real model on a real text, under several rotary rules.

``gnomon eval`` is the command (``gnomon.eval.__main__``). In reading order:

- ``methods``     what ``yarn:4`` means for a given model: one rotary spec per group of layers
- ``checkpoint``  a model folder or GGUF file: its header, tokenizer, weights; and the text
- ``tasks``       what is read (the text, a haystack) and what is asked on the way (repeat, passkey)
- ``context``     a model reading in chunks through a cache, and answering without keeping the question
- ``run``         one method after the other, each result kept as soon as it exists
- ``result``      plain data: bins, answers, JSON
- ``progress``, ``table``, ``report``  what a person sees

Nothing here imports torch or matplotlib before it is needed, so that ``gnomon eval --help`` answers at once.
"""
