/* read_file.c -- prints what a reader makes of a file, for tests/oracle/outside_suites.py:
 *
 *     read_file json FILE           the value: n, t, f, dNUMBER, sHEX, [ ... ], { sHEX VALUE ... }
 *     read_file jsonl FILE          the file is one line: sHEX, the string of its key "text"
 *     read_file parquet FILE        for each column its digest, or "refused" and why
 *     read_file arrow FILE COLUMN   the column's digest
 *
 * Exits with 65 after an error, which it prints. */
// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"
#include "base/json.h"
#include "data/jsonl.h"
#include "formats/arrow_reader.h"
#include "formats/parquet_column.h"

#include "oracle/entry_digest.h"

#include <stdio.h>
#include <string.h>

enum { MAX_FILE = 1 << 28, EXIT_REFUSED = 65 };

static void print_string(const char *bytes, size_t len)
{
    printf(" s");
    for (size_t i = 0; i < len; i++) printf("%02x", (unsigned char)bytes[i]);
}

static void print_json(const struct json *v)
{
    if (json_is_string(v)) print_string(json_string(v), strlen(json_string(v)));
    if (json_is_number(v)) printf(" d%.17g", json_number(v));
    if (json_is_bool(v)) printf(" %c", json_true(v) ? 't' : 'f');
    if (json_is_null(v)) printf(" n");
    if (!json_is_array(v) && !json_is_object(v)) return;
    printf(" %c", json_is_object(v) ? '{' : '[');
    for (const struct json *c = json_first(v); c; c = json_next(c)) {
        if (json_is_object(v)) print_string(json_key(c), strlen(json_key(c)));
        print_json(c);
    }
    printf(" %c", json_is_object(v) ? '}' : ']');
}

static enum status read_json(const char *path)
{
    struct json *root;
    TRY(json_read(path, MAX_FILE, &root));
    print_json(root);
    json_free(root);
    return STATUS_OK;
}

static enum status read_jsonl(const char *path)
{
    struct text line = {0}, out = {0};
    enum status st = file_read(path, MAX_FILE, &line);
    if (!st) st = jsonl_text(line.data, line.len, "text", path, &out);
    if (!st) print_string(out.data, out.len);
    text_release(&line), text_release(&out);
    return st;
}

static void print_digest(const struct entry_digest *d)
{
    printf("%llu:%08x\n", (unsigned long long)d->entries, d->crc);
}

static enum status digest_leaf(struct parquet_column *c)
{
    struct entry_digest d = {0};
    struct column_entry e;
    for (uint64_t row = 0; row < c->file->num_rows; row++) {
        for (bool more = true; more;) {
            TRY(parquet_column_next(c, &e));
            entry_digest_add(&d, &e, c->values.bytes);
            TRY(parquet_column_has_more(c, &more));
        }
    }
    print_digest(&d);
    return STATUS_OK;
}

static enum status read_parquet(const char *path)
{
    struct parquet p;
    TRY(parquet_open(&p, path));
    for (size_t leaf = 0; leaf < p.num_leaves; leaf++) {
        struct parquet_column c;
        parquet_column_init(&c, &p, leaf);
        if (digest_leaf(&c)) printf("refused %s\n", status_message());
        parquet_column_release(&c);
    }
    parquet_close(&p);
    return STATUS_OK;
}

struct arrow_digest {
    struct entry_digest digest;
    bool is_text;
};

static enum status add_entry(void *context, const struct column_entry *e)
{
    struct arrow_digest *d = context;
    entry_digest_add(&d->digest, e, d->is_text);
    return STATUS_OK;
}

static enum status read_arrow(const char *path, const char *column)
{
    struct arrow a;
    struct arrow_reader r;
    TRY(arrow_open(&a, path, column));
    struct arrow_digest d = {.is_text = a.is_text};
    arrow_reader_init(&r, &a);
    enum status st = STATUS_OK;
    for (uint64_t row = 0; row < a.num_rows && !st; row++)
        st = arrow_reader_visit_row(&r, row, add_entry, &d);
    if (!st) print_digest(&d.digest);
    arrow_reader_release(&r);
    arrow_close(&a);
    return st;
}

int main(int argc, char **argv)
{
    const char *kind = argc > 2 ? argv[1] : "";
    enum status st = STATUS_OK;
    if (!strcmp(kind, "json"))
        st = read_json(argv[2]);
    else if (!strcmp(kind, "jsonl"))
        st = read_jsonl(argv[2]);
    else if (!strcmp(kind, "parquet"))
        st = read_parquet(argv[2]);
    else if (!strcmp(kind, "arrow") && argc == 4)
        st = read_arrow(argv[2], argv[3]);
    else
        return fprintf(stderr, "usage: read_file json|jsonl|parquet|arrow FILE [COLUMN]\n"), 64;
    if (st) fprintf(stderr, "%s\n", status_message());
    return st ? EXIT_REFUSED : 0;
}
