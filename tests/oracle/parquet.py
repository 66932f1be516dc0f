# SPDX-License-Identifier: Apache-2.0
"""Parquet and Arrow files of other programs, and digests of what pyarrow reads from them.

    python parquet.py write FOLDER ROWS   files of pyarrow, duckdb and polars, with all options
    python parquet.py arrow FOLDER        tests/oracle/data/arrow
    python parquet.py packed FILE         tests/formats/data/packed_levels.parquet
    python parquet.py digest FOLDER       FOLDER/digests, for tests/oracle/parquet.c

The files in tests/oracle/data/parquet are some of `write` with 30 rows, made with pyarrow 26.0.1, duckdb 2.0.0 and
polars 2.1.0, and the small ones of apache/parquet-testing.  A digest of a column is the number of
its entries and the CRC-32 over (u8 rep, u8 def, value) of each; numbers have 8 bytes, strings are
preceded by their length in 4 bytes.
"""
import decimal
import os
import random
import struct
import sys
import uuid
import zlib

import pyarrow as pa
import pyarrow.parquet as pq


def shred(value, field_type, nullable, rep, level, definition, out):
    """Appends the (rep, def, value) entries of a value to out, one list per leaf."""
    if nullable:
        if value is None:
            for leaf in out:
                leaf.append((rep, definition, None))
            return
        definition += 1
    if pa.types.is_struct(field_type):
        at = 0
        for i in range(field_type.num_fields):
            child = field_type.field(i)
            width = leaves(child.type)
            shred(value[child.name], child.type, child.nullable, rep, level, definition, out[at:at + width])
            at += width
    elif pa.types.is_list(field_type) or pa.types.is_large_list(field_type) or pa.types.is_map(field_type):
        if pa.types.is_map(field_type):
            item = pa.field("entries", pa.struct([field_type.key_field, field_type.item_field]), nullable=False)
            value = [{field_type.key_field.name: k, field_type.item_field.name: v} for k, v in value]
        else:
            item = field_type.value_field
        if not value:
            for leaf in out:
                leaf.append((rep, definition, None))
        for i, v in enumerate(value):
            shred(v, item.type, item.nullable, rep if i == 0 else level + 1, level + 1, definition + 1, out)
    else:
        out[0].append((rep, definition, value))


def leaves(t):
    if pa.types.is_map(t):
        return leaves(t.key_type) + leaves(t.item_type)
    if pa.types.is_struct(t):
        return sum(leaves(t.field(i).type) for i in range(t.num_fields))
    if pa.types.is_list(t) or pa.types.is_large_list(t):
        return leaves(t.value_type)
    return 1


def physical(value, column):
    """The bytes of a value in the digest."""
    kind = column.physical_type
    if kind == "INT96":
        days, micros = divmod(value, 86400 * 10**6)
        value = struct.pack("<qi", micros * 1000, days + 2440588)
    if isinstance(value, decimal.Decimal):
        value = int(value.scaleb(column.scale))
        if kind in ("FIXED_LEN_BYTE_ARRAY", "BYTE_ARRAY"):
            size = column.length if kind[0] == "F" else max(1, (value.bit_length() + 8) // 8)
            value = value.to_bytes(size, "big", signed=True)
    if isinstance(value, uuid.UUID):
        value = value.bytes
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, int) and kind == "FIXED_LEN_BYTE_ARRAY":  # of halfs
        value = value.to_bytes(2, "little")
    if isinstance(value, bytes):
        return struct.pack("<I", len(value)) + value
    if kind == "FLOAT":
        return struct.pack("<fI", value, 0)
    if kind == "DOUBLE":
        return struct.pack("<d", value)
    value = int(value)
    if kind == "INT32" and value >= 2**31:
        value -= 2**32
    return struct.pack("<Q", value % 2**64)


def storage(t):
    """The physical type: times as integers."""
    if pa.types.is_timestamp(t) or pa.types.is_time64(t) or pa.types.is_date64(t) or pa.types.is_duration(t):
        return pa.int64()
    if pa.types.is_date32(t) or pa.types.is_time32(t):
        return pa.int32()
    if pa.types.is_struct(t):
        return pa.struct([field.with_type(storage(field.type)) for field in t])
    if pa.types.is_list(t):
        return pa.list_(t.value_field.with_type(storage(t.value_type)))
    return t


def digest(path):
    file = pq.ParquetFile(path, page_checksum_verification=True, coerce_int96_timestamp_unit="us")
    table = file.read()
    out = []
    for name, column in zip(table.column_names, table.columns):
        field = table.schema.field(name)
        stored = storage(field.type)
        if pa.types.is_float16(field.type):  # Python's floats lose the bits of a NaN
            column = pa.chunked_array([chunk.view(pa.uint16()) for chunk in column.chunks], pa.uint16())
        elif stored != field.type:
            column = column.cast(stored)
        shredded = [[] for _ in range(leaves(field.type))]
        for value in column.to_pylist():
            shred(value, stored, field.nullable, 0, 0, 0, shredded)
        for entries in shredded:
            of = file.schema.column(len(out))
            crc = 0
            for rep, definition, value in entries:
                data = b"" if value is None else physical(value, of)
                crc = zlib.crc32(bytes((rep, definition)) + data, crc)
            out.append(f"{len(entries)}:{crc:08x}")
    return out


def digests(folder):
    lines = []
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".parquet"):
            continue
        try:
            lines.append(" ".join([name] + digest(os.path.join(folder, name))))
        except Exception as e:
            print(f"{name}: pyarrow: {type(e).__name__}: {e}")
            lines.append(name + " refused")
    with open(os.path.join(folder, "digests"), "w") as f:
        f.write("\n".join(lines) + "\n")


def table(rows):
    r = random.Random(1)
    words = "the quick brown fox \u00e9t\u00e9 \u4e2d\u6587 \U0001f600 jumps over \n lazy dogs".split(" ")
    text = lambda: " ".join(r.choice(words) for _ in range(r.randrange(12)))
    maybe = lambda make: None if r.random() < 0.15 else make()
    many = lambda make: [make() for _ in range(r.randrange(5))]
    file_type = pa.struct([("text", pa.string()), ("size", pa.int32())])
    return pa.table({
        "text": pa.array([maybe(text) for _ in range(rows)], pa.string()),
        "few": pa.array([r.choice(words) for _ in range(rows)], pa.string()),
        "small": pa.array([maybe(lambda: r.randrange(-9, 9)) for _ in range(rows)], pa.int32()),
        "large": pa.array([r.randrange(-2**63, 2**63) for _ in range(rows)], pa.int64()),
        "real": pa.array([maybe(r.random) for _ in range(rows)], pa.float64()),
        "single": pa.array([r.random() for _ in range(rows)], pa.float32()),
        "truth": pa.array([maybe(lambda: r.random() < 0.5) for _ in range(rows)], pa.bool_()),
        "ids": pa.array([maybe(lambda: many(lambda: maybe(lambda: r.randrange(1000)))) for _ in range(rows)],
                        pa.list_(pa.int64())),
        "files": pa.array([maybe(lambda: many(lambda: maybe(lambda: {"text": maybe(text), "size": r.randrange(9)})))
                           for _ in range(rows)], pa.list_(file_type)),
        "counts": pa.array([maybe(lambda: [[r.randrange(256) for _ in range(4)] for _ in range(r.randrange(4))])
                            for _ in range(rows)], pa.list_(pa.list_(pa.uint8()))),
    })


def documents():
    """The table that tests/data/test_table.c expects."""
    return pa.table({
        "number": pa.array([1, 2, 3, 4, 5], pa.int64()),
        "text": pa.array(["one", None, "", "f\u00fcr", "last"]),
        "files": pa.array([[{"text": "a"}, {"text": None}, {"text": "b"}], [], None, [None], [{"text": "c"}]],
                          pa.list_(pa.struct([("text", pa.string())]))),
        "input_ids": pa.array([[5, 6, None, 7], [], None, [0], [2**31]], pa.list_(pa.int64())),
        "spike_counts": pa.array([[[1, 2, 3], [4, 5, 255]], [], None, [[9]], [[1, 2], [3]]],
                                 pa.list_(pa.list_(pa.uint8()))),
        "not_utf8": pa.array([b"\xff", b"a", b"b", b"c", b"d"]),
    })


def views_of(t):
    """Columns of views, among them one after another view column, and lists of other layouts."""
    long = ["a text that is too long to stand in its view", None, "", "short", "another one of more than twelve bytes"]
    return pa.table({
        "bytes": pa.array([x and x.encode() for x in long], pa.binary_view()),
        "text": pa.array(long, pa.string_view()),
        "files": pa.array([[{"text": x}, {"text": "b"}] for x in long],
                          pa.list_(pa.struct([("text", pa.string_view())]))),
        "input_ids": pa.array([[1, 2, 3], None, [4, 5, 6], [7, None, 9], [0, 0, 0]], pa.list_(pa.int32(), 3)),
        "ids_view": pa.array([[1, 2], None, [], [3], [4, 5, 6]], pa.list_view(pa.uint16())),
        "large_view": pa.array([[1, 2], None, [], [3], [4, 5, 6]], pa.large_list_view(pa.int64())),
        "number": t["number"],
    })


def arrow(folder):
    """The same table as Arrow files; saved/ is written by `datasets`."""
    import datasets
    import polars
    os.makedirs(folder, exist_ok=True)
    t = documents()
    with pa.ipc.new_stream(os.path.join(folder, "stream.arrow"), t.schema) as w:
        w.write_table(t, max_chunksize=3)
    with pa.ipc.new_file(os.path.join(folder, "file.arrow"), t.schema) as w:
        for batch in t.slice(1).to_batches(max_chunksize=2):
            w.write_batch(batch)
    ids = t.slice(0, 4).select(["input_ids", "spike_counts"]).append_column("large", pa.array([[259]] * 4))
    with pa.ipc.new_stream(os.path.join(folder, "ids.arrow"), ids.schema) as w:
        w.write_table(ids)
    large = t.cast(pa.schema([("number", pa.int64()), ("text", pa.large_string()), t.schema.field("files"),
                              ("input_ids", pa.large_list(pa.int64())), t.schema.field("spike_counts"),
                              ("not_utf8", pa.large_binary())]))
    with pa.ipc.new_stream(os.path.join(folder, "large.arrow"), large.schema) as w:
        w.write_table(large)
    coded = lambda table: table.set_column(1, "text", table["text"].dictionary_encode())
    views = views_of(t)
    for name, table, codec in (("packed", t, "zstd"), ("lz4", t, "lz4"), ("coded", coded(t), None),
                               ("packed_coded", coded(t), "zstd"), ("views", views, None),
                               ("packed_views", views, "lz4")):
        with pa.ipc.new_stream(os.path.join(folder, name + ".arrow"), table.schema,
                               options=pa.ipc.IpcWriteOptions(compression=codec)) as w:
            w.write_table(table)
    polars.from_arrow(t).write_ipc(os.path.join(folder, "polars.arrow"), compression="zstd")
    words = [["one", None, "two"], ["two", "three"], ["four", "one"]]
    for name, deltas in (("deltas", True), ("replaced", False)):
        known = []
        with pa.ipc.new_stream(os.path.join(folder, name + ".arrow"),
                               pa.schema([("text", pa.dictionary(pa.int8(), pa.string()))]),
                               options=pa.ipc.IpcWriteOptions(emit_dictionary_deltas=deltas)) as w:
            for batch in words:
                known = [*known, *(x for x in batch if x and x not in known)] if deltas else [x for x in batch if x]
                places = pa.array([x and known.index(x) for x in batch], pa.int8())
                w.write_batch(pa.record_batch([pa.DictionaryArray.from_arrays(places, pa.array(known))], ["text"]))
    datasets.Dataset.from_dict({"text": ["one", "two", "three", "four", "five"]}).save_to_disk(
        os.path.join(folder, "saved"), num_shards=2)


def packed_levels(path):
    """Writes a file with levels in the deprecated encoding BIT_PACKED, which no available writer supports:
    the rows [1, null], null, [], [2, 3, 4].  pyarrow reads the bits of each byte in the opposite order
    to parquet-format's Encodings.md, so the file has no digest."""
    varint = lambda n: bytes([n]) if n < 128 else bytes([n & 127 | 128]) + varint(n >> 7)
    number = lambda n: varint(n << 1)
    string = lambda text: varint(len(text)) + text.encode()
    listed = lambda kind, items: bytes([len(items) << 4 | kind]) + b"".join(items)

    def struct_of(fields):
        out, last = b"", 0
        for at, (kind, value) in sorted(fields.items()):
            out += bytes([(at - last) << 4 | kind]) + value
            last = at
        return out + b"\0"

    i32 = lambda n: (5, number(n))
    i64 = lambda n: (6, number(n))
    rep, def_, values = [0, 1, 0, 0, 0, 1, 1], [3, 2, 0, 1, 3, 3, 3], [1, 2, 3, 4]
    pack = lambda levels, width: int("".join(f"{v:0{width}b}" for v in levels).ljust(16, "0"), 2).to_bytes(2, "big")
    page = pack(rep, 1)[:1] + pack(def_, 2) + struct.pack("<4i", *values)
    head = struct_of({1: i32(0), 2: i32(len(page)), 3: i32(len(page)),
                      5: (12, struct_of({1: i32(7), 2: i32(0), 3: i32(4), 4: i32(4)}))})
    name = lambda text: (8, string(text))
    schema = [struct_of({4: name("schema"), 5: i32(1)}),
              struct_of({3: i32(1), 4: name("ids"), 5: i32(1), 6: i32(3)}),
              struct_of({3: i32(2), 4: name("list"), 5: i32(1)}),
              struct_of({1: i32(1), 3: i32(1), 4: name("element")})]
    chunk = struct_of({2: i64(4), 3: (12, struct_of({
        1: i32(1), 2: (9, listed(5, [number(0), number(4)])), 4: i32(0), 5: i64(7),
        3: (9, listed(8, [string("ids"), string("list"), string("element")])),
        6: i64(len(head + page)), 7: i64(len(head + page)), 9: i64(4)}))})
    group = struct_of({1: (9, listed(12, [chunk])), 2: i64(len(head + page)), 3: i64(4)})
    footer = struct_of({1: i32(1), 2: (9, listed(12, schema)), 3: i64(4), 4: (9, listed(12, [group]))})
    with open(path, "wb") as f:
        f.write(b"PAR1" + head + page + footer + struct.pack("<I", len(footer)) + b"PAR1")


def write(folder, rows):
    import duckdb
    import polars
    os.makedirs(folder, exist_ok=True)
    t = table(rows)
    at = lambda name: os.path.join(folder, name + ".parquet")
    for codec in "none", "snappy", "gzip", "brotli", "zstd", "lz4":
        for version in "1.0", "2.0":
            pq.write_table(t, at(f"pyarrow-{codec}-v{version[0]}"), compression=codec, data_page_version=version,
                           row_group_size=25, data_page_size=200, write_batch_size=7,
                           write_page_checksum=version == "2.0")
    plain = {name: "PLAIN" for name in t.column_names}
    kinds = {
        "delta": {"small": "DELTA_BINARY_PACKED", "large": "DELTA_BINARY_PACKED", "text": "DELTA_LENGTH_BYTE_ARRAY",
                  "few": "DELTA_BYTE_ARRAY", "truth": "RLE", "ids.list.element": "DELTA_BINARY_PACKED",
                  "files.list.element.text": "DELTA_BYTE_ARRAY", "real": "BYTE_STREAM_SPLIT",
                  "single": "BYTE_STREAM_SPLIT"},
        "split": {"small": "BYTE_STREAM_SPLIT", "large": "BYTE_STREAM_SPLIT", "text": "DELTA_BYTE_ARRAY"},
        "plain": {name: "PLAIN" for name in ("text", "few", "small", "large", "real", "single", "truth")},
    }
    for name, encoding in kinds.items():
        for version in "1.0", "2.0":
            pq.write_table(t, at(f"pyarrow-{name}-v{version[0]}"), use_dictionary=False, column_encoding=encoding,
                           data_page_version=version, row_group_size=40, data_page_size=300, write_batch_size=9)
    pq.write_table(t, at("pyarrow-mixed"), dictionary_pagesize_limit=40, data_page_size=100, write_batch_size=5)
    con = duckdb.connect()
    con.register("t", t)
    for version in "V1", "V2":
        for codec in "uncompressed", "snappy", "gzip", "zstd", "brotli", "lz4_raw":
            con.execute(f"copy t to '{at('duckdb-' + codec + '-' + version)}' "
                        f"(format parquet, codec {codec}, parquet_version {version}, row_group_size 2048)")
    pq.write_table(documents(), at("documents"), row_group_size=3)
    p = polars.from_arrow(t)
    for codec in "uncompressed", "snappy", "gzip", "zstd", "brotli", "lz4":
        p.write_parquet(at(f"polars-{codec}"), compression=codec, row_group_size=30, data_page_size=500)


def main():
    if sys.argv[1] == "write":
        write(sys.argv[2], int(sys.argv[3]))
    elif sys.argv[1] == "packed":
        packed_levels(sys.argv[2])
    elif sys.argv[1] == "arrow":
        arrow(sys.argv[2])
    else:
        digests(sys.argv[2])


if __name__ == "__main__":
    main()
