#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a torch.save file with tensors that are hard to read, for tests/formats.

    python tests/oracle/torch_file.py tests/formats/data/kinds.pt

The elements of a tensor increase by 1 in row-major order, from the number at the end of its name.
"""
import sys
import torch


def rising(first, *shape, dtype=torch.float32):
    count = 1
    for n in shape:
        count *= n
    return (torch.arange(count) + first).reshape(shape).to(dtype)


shared = rising(10, 4, 3)
state = torch.nn.Module()
state.register_parameter("weight5", torch.nn.Parameter(rising(5, 3)))
torch.save({
    "float10": shared,
    "view13": shared[1:3],
    "turned20": rising(20, 2, 3).t().contiguous().t(),
    "nested": {"bfloat30": rising(30, 2, 2, dtype=torch.bfloat16),
               7: {"half40": rising(40, 3, dtype=torch.float16)}},
    "double50": rising(50, 2, dtype=torch.float64),
    "scalar60": torch.tensor(60.0),
    "none70": torch.zeros(0, 3),
    "long80": rising(80, 2, dtype=torch.int64),
    "module": state.state_dict(),
    "parameter90": torch.nn.Parameter(rising(90, 2)),
    "step": 300, "rate": 0.5, "list": [1, -2, 70000, None, True, ("a", b"b")],
}, sys.argv[1])
print("torch", torch.__version__)
