/* hub.c -- fuzzes the parsers of a Hub server's answers: file listings, Link headers and redirects;
 * and of hf:// paths. */
// SPDX-License-Identifier: Apache-2.0
#include "hub/listing.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct listing l = {0}, again = {0};
    struct text t = {0};
    struct place p;
    char *text = heap_string((const char *)data, size);
    text_adds(&t, "hf://");
    text_adds(&t, text);
    if (!place_read(&p, t.data)) {
        BUG_IF(!is_inside(p.revision) || strstr(p.repo, ".."));
        place_release(&p);
    }
    link_next(text, &t);
    url_redirect("https://hub/a/b", text, &t);
    if (!listing_add(&l, text, size, "fuzz")) {
        for (size_t i = 0; i < l.count; i++) BUG_IF(!is_inside(l.files[i].path));
        text_clear(&t);
        listing_write(&l, &t);
    }
    listing_parse(&again, text);
    listing_release(&again);
    listing_release(&l);
    text_release(&t);
    free(text);
    return 0;
}
