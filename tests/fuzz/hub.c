/* hub.c (fuzz) -- responses of an untrusted server: lists of files, Link headers, redirects; and
 * hf:// paths. */
// SPDX-License-Identifier: Apache-2.0
#include "hub/listing.h"
#include "hub/url.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct listing l = {0}, again = {0};
    struct text t = {0};
    struct hub_path p;
    char *text = heap_string((const char *)data, size);
    text_adds(&t, "hf://");
    text_adds(&t, text);
    if (!hub_path_parse(&p, t.data)) {
        BUG_IF(!hub_path_is_contained(p.revision) || strstr(p.repo, ".."));
        hub_path_release(&p);
    }
    url_next_page(text, &t);
    url_redirect("https://hub/a/b", text, &t);
    if (!listing_add_page(&l, text, size, "fuzz")) {
        for (size_t i = 0; i < l.count; i++) BUG_IF(!hub_path_is_contained(l.files[i].path));
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
