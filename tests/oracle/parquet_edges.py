# SPDX-License-Identifier: Apache-2.0
"""Writes tests/formats/data/edge-*: Parquet and Arrow files that are valid but unusual, or refused.

Needs pyarrow.  Run it in the root of the repository.
"""
import base64

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe

FOLDER = "tests/formats/data/edge-"
PLAIN = {"compression": "none", "use_dictionary": False, "write_statistics": False, "store_schema": False}


def write(name, table, groups=None, **options):
    """`groups`: the number of rows of each row group."""
    with pq.ParquetWriter(f"{FOLDER}{name}.parquet", table.schema, **PLAIN, **options) as writer:
        at = 0
        for rows in groups or [len(table)]:
            writer.write_table(table.slice(at, rows), row_group_size=max(rows, 1))
            at += rows


class Kms(pe.KmsClient):
    """Keys are not wrapped."""

    def __init__(self, config):
        super().__init__()

    def wrap_key(self, key, master):
        return base64.b64encode(key)

    def unwrap_key(self, wrapped, master):
        return base64.b64decode(wrapped)


text = pa.table({"text": ["one", "two", None, "four"], "n": [1, 2, 3, 4]})
write("empty-groups", text, [0, 2, 0, 0, 2, 0])
write("no-rows", text.slice(0, 0), [0])
write("no-groups", text.slice(0, 0), [])
write("dots", pa.table({"a.b": ["dotted"], "a": [{"c": "nested"}], "x.y.z": [{"t.u": "deep"}]}))
write("twice", pa.table([["one"], ["two"], ["three"]], names=["text", "text", "other"]))
ids = pa.array([[1, 2], [3, None], [], None, [4]], pa.list_(pa.int32()))
write("null-ids", pa.table({"ids": ids}))
feather.write_feather(pa.table({"ids": ids}), f"{FOLDER}null-ids.arrow", "uncompressed")
good = pa.array([[5, 6, 7], [], None, [0]], pa.list_(pa.int64()))
feather.write_feather(pa.table({"ids": good}), f"{FOLDER}ids.arrow", "uncompressed")
feather.write_feather(pa.table([["one"], ["two"]], names=["text", "text"]), f"{FOLDER}twice.arrow",
                      "uncompressed")
feather.write_feather(pa.table({"a.b": ["dotted"]}), f"{FOLDER}dots.arrow", "uncompressed")
feather.write_feather(text.slice(0, 0), f"{FOLDER}no-rows.arrow", "uncompressed")

factory = pe.CryptoFactory(Kms)
properties = factory.file_encryption_properties(
    pe.KmsConnectionConfig(),
    pe.EncryptionConfiguration(footer_key="k", column_keys={"k": ["text"]}, plaintext_footer=True,
                               data_key_length_bits=128))
write("encrypted", text, encryption_properties=properties)

# As Arrow C++ wrote pages before 3.0: compressed, and the header (fields 6 and 7) says that they are not.
lines = pa.table({"text": ["the same line again and again", "the same line again and again", "the last line"]})
pq.write_table(lines, f"{FOLDER}v2-flag.parquet", **{**PLAIN, "compression": "snappy"}, data_page_version="2.0")
with open(f"{FOLDER}v2-flag.parquet", "r+b") as f:
    image = f.read()
    assert image.count(b"\x15\0\x11") == 1
    f.seek(0)
    f.write(image.replace(b"\x15\0\x11", b"\x15\0\x12"))

# A column behind unions, whose buffers depend on their kind and on the version of the metadata.
parts = [pa.array([1, 2]), pa.array(["a", "b"])]
kinds = pa.array([0, 1], pa.int8())
unions = pa.table({"sparse": pa.UnionArray.from_sparse(kinds, parts), "text": ["one", "two"],
                   "dense": pa.UnionArray.from_dense(kinds, pa.array([0, 1], pa.int32()), parts),
                   "last": ["three", "four"]})
for name, version in ("", pa.ipc.MetadataVersion.V5), ("-v4", pa.ipc.MetadataVersion.V4):
    options = pa.ipc.IpcWriteOptions(metadata_version=version)
    with pa.ipc.new_file(f"{FOLDER}union{name}.arrow", unions.schema, options=options) as writer:
        writer.write_table(unions)
