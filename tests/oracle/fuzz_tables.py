#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes small Parquet seeds, in encodings that are missing from the small files of tests/formats:
fuzz_tables.py tests/fuzz/corpus/parquet

Written with pyarrow 26.0.1.
"""
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

out = Path(sys.argv[1])


def put(name, arrays, **options):
    table = pa.table(arrays)
    pq.write_table(table, out / name, store_schema=False, write_statistics=False, **options)


words = ["", "ab", "abc", "abd", "b", "abdomen", "abe"]
plain = dict(use_dictionary=False, compression="none")
put("delta_lengths", {"text": words}, column_encoding={"text": "DELTA_LENGTH_BYTE_ARRAY"}, **plain)
put("delta_strings", {"text": words}, column_encoding={"text": "DELTA_BYTE_ARRAY"}, **plain)
put("delta_fixed", {"text": pa.array([b"abc", b"abd", b"bcd"], pa.binary(3))},
    column_encoding={"text": "DELTA_BYTE_ARRAY"}, **plain)
put("fixed", {"text": pa.array([b"abc", None, b"bcd"], pa.binary(3))}, **plain)
put("split", {"ids": pa.array(range(5), pa.int32()), "text": pa.array([b"ab"] * 5, pa.binary(2))},
    column_encoding={"ids": "BYTE_STREAM_SPLIT", "text": "BYTE_STREAM_SPLIT"}, **plain)
put("delta_ids", {"ids": [[1, 2, 3], [], None, [70000, -5]]},
    column_encoding={"ids.list.element": "DELTA_BINARY_PACKED"}, data_page_version="2.0", **plain)
put("counts", {"counts": pa.array([[[1, 2], []], [], [[3]]], pa.list_(pa.list_(pa.uint8())))},
    compression="none")
put("pages", {"text": [w * 3 for w in words]}, data_page_size=1, write_batch_size=1,
    write_page_index=True, **plain)
