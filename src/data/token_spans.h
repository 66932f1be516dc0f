/* token_spans.h -- which tokens of which documents a row consists of, for people who want to know
 * what a step trained on.  Training asks for none. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Consecutive tokens of one document.  Its tokens are numbered from 0, BOS and EOS included. */
struct token_span {
    int begin, count; /* tokens [begin, begin + count) of the row */
    size_t source, file;
    uint64_t at;     /* source_document.at; with data.order = "megatron" the sequence */
    uint64_t first;  /* the document's token at `begin` */
    bool is_skipped; /* a bad record: zeros stand for its tokens */
};

/* The spans of a row, in order.  A token whose document is unknown is in none of them: the first
 * one of a row, if its source has changed (data.accept_changed). */
struct token_spans {
    struct token_span *items; /* owned */
    size_t count, capacity;
};

/* Appends a span, or extends the last one if that ends where this one begins. */
void token_spans_add(struct token_spans *s, const struct token_span *span);
void token_spans_release(struct token_spans *s);
