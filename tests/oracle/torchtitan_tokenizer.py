#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Computes the expected values of hf_json_takes_bos_and_eos_from_tokenizer_config, a test of
tests/tokenizer/files/test_hf_json.c, with torchtitan's HuggingFaceTokenizer.

    python tests/oracle/torchtitan_tokenizer.py TORCHTITAN

TORCHTITAN is a checkout of torchtitan v0.2.2; pip install tokenizers.  Prints BOS, EOS, and the IDs
of a document as torchtitan's data sets encode it."""
import json
import logging
import pathlib
import sys
import tempfile
import types

from tokenizers.pre_tokenizers import ByteLevel

ADDED = [{"id": 257, "content": "<|begin_of_text|>"}, {"id": 258, "content": "<|end_of_text|>"}]
FLAGS = {"special": True, "normalized": False, "lstrip": False, "rstrip": False,
         "single_word": False}
# added_tokens, tokenizer_config.json
CASES = [([], {"bos_token": "<b>", "eos_token": {"content": "<e>"}}),
         ([], {"bos_token": "<pad>", "eos_token": None}),
         (ADDED, {}),
         (ADDED, {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"}),
         (ADDED, {"bos_token": "<b>", "eos_token": "<b>"}),
         (ADDED, {"eos_token": "<|end_of_text|>", "add_eos_token": False})]


def tokenizer_class(folder):
    """The module's class, with stand-ins for the rest of torchtitan."""
    stubs = {"torchtitan": {}, "torchtitan.config": {"JobConfig": object},
             "torchtitan.tools": {}, "torchtitan.tools.logging": {"logger": logging.getLogger()}}
    for name, members in stubs.items():
        sys.modules[name] = types.ModuleType(name)
        vars(sys.modules[name]).update(members)
    known = {}
    exec(open(f"{folder}/torchtitan/components/tokenizer.py").read(), known)
    return known["HuggingFaceTokenizer"]


alphabet = "".join(ByteLevel(add_prefix_space=False).pre_tokenize_str(chr(i))[0][0]
                   for i in range(128))
for added, config in CASES:
    vocab = {byte: i for i, byte in enumerate(alphabet)} | {"<pad>": 256}
    vocab |= {f"filler {i}": i for i in range(128, 256)}
    model = {"type": "BPE", "vocab": vocab, "merges": []}
    file = {"added_tokens": [token | FLAGS for token in added], "model": model,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False,
                              "trim_offsets": True, "use_regex": True}}
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "tokenizer.json").write_text(json.dumps(file))
        pathlib.Path(folder, "tokenizer_config.json").write_text(json.dumps(config))
        t = tokenizer_class(sys.argv[1])(folder)
        print(json.dumps(config), t.bos_id, t.eos_id, t.encode("ab", add_bos=True, add_eos=True))
