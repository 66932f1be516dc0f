/* s3.c (fuzz) -- responses of an untrusted object store: lists of objects and errors; and AWS's
 * configuration files and s3:// paths; credentials of a metadata service or a process. */
// SPDX-License-Identifier: Apache-2.0
#include "hub/s3_keys.h"
#include "hub/s3_listing.h"
#include "hub/s3_process.h"
#include "hub/s3_profile.h"
#include "hub/s3_source.h"
#include "hub/xml.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_settings(const char *text)
{
    static const char *const keys[] = {"region", "aws_secret_access_key",
                                       "services.s3.endpoint_url"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        bool found = false;
        free(s3_profile_find(text, "default", keys[i], &found));
        free(s3_profile_find(text, "p", keys[i], &found));
    }
}

static void read_credentials(const char *text, size_t size)
{
    struct text json = {0};
    struct s3_keys k = {0};
    double seconds;
    text_add(&json, text, size);
    if (!s3_keys_parse(&json, "fuzz", &k)) BUG_IF(!k.key_id[0] || !s3_keys_is_printable(k.secret));
    s3_keys_release(&k);
    if (!s3_keys_parse_process(&json, "fuzz", &k)) BUG_IF(!k.key_id[0] || !k.session_token);
    s3_keys_release(&k);
    if (s3_keys_parse_time(text, &seconds)) BUG_IF(!(seconds > -1e6 && seconds < 1e12));
    char **words = s3_process_split(text);
    for (size_t i = 0; words && words[i]; i++) free(words[i]);
    free(words);
    if (s3_source_is_allowed(text)) BUG_IF(strncmp(text, "http", 4));
    text_release(&json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct listing l = {0}, again = {0};
    struct text next = {0}, t = {0};
    struct hub_path p;
    char *text = heap_string((const char *)data, size);
    text_adds(&t, "s3://");
    text_adds(&t, text);
    if (!hub_path_parse(&p, t.data)) {
        BUG_IF(!p.is_s3 || strchr(p.repo, '/') || strstr(p.repo, ".."));
        BUG_IF(p.path[0] && !hub_path_is_contained(p.path));
        hub_path_release(&p);
    }
    if (!s3_listing_add_page(&l, text, size, "fuzz", &next)) {
        text_clear(&t);
        for (size_t i = 0; i < l.count; i++) BUG_IF(!l.files[i].is_folder && !l.files[i].etag);
        listing_write(&l, &t);
    }
    listing_parse(&again, text);
    read_settings(text);
    read_credentials(text, size);
    text_clear(&t);
    xml_escape(&t, text);
    listing_release(&again);
    listing_release(&l);
    text_release(&next);
    text_release(&t);
    free(text);
    return 0;
}
