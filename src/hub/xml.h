/* xml.h -- a pull parser for the XML of object stores' responses (a subset of XML 1.0).
 *
 * Parses elements, text, attributes (skipped), comments, processing instructions, CDATA, the five
 * named entities and character references.  A document type declaration is an error, so nothing
 * can expand.
 * Memory   Strings are valid until the next xml_next. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>

enum { XML_MAX_DEPTH = 16 };
enum xml_event { XML_START, XML_END, XML_EOF };

struct xml {
    const char *begin, *at, *end;
    const char *what; /* for messages; borrowed */
    enum xml_event event;
    struct text path; /* "/Root/Child": the open elements; at XML_END with the one that ends */
    struct text text; /* of a leaf, at its XML_END; else incomplete */
    bool is_leaf;     /* the element that ends has no children */
    int depth;
    bool has_root, is_empty, ends_element; /* internal */
};

void xml_init(struct xml *x, const char *bytes, size_t len, const char *what);
void xml_release(struct xml *x);
/* DATA: not well-formed, nested too deeply, not UTF-8; the message has the offset. */
enum status xml_next(struct xml *x);
/* Whether the event is the end of a childless element with that path. */
bool xml_is_leaf(const struct xml *x, const char *path);
/* At such an event, replaces *to by the element's text. */
void xml_copy_leaf(const struct xml *x, const char *path, struct text *to);
/* Appends text with &, <, > and quotes escaped. */
void xml_escape(struct text *t, const char *text);
