// SPDX-License-Identifier: Apache-2.0
#include "hub/s3_listing.h"

#include "hub/s3_settings.h"
#include "hub/url.h"
#include "hub/xml.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_OBJECTS = 1 << 20, MAX_PAGES = 1 << 11 };

/* The object being read. */
struct s3_entry {
    struct text key, etag, size;
};

static void clear_entry(struct s3_entry *e)
{
    text_clear(&e->key);
    text_clear(&e->etag);
    text_clear(&e->size);
}

static enum status add_object(struct listing *l, const struct s3_entry *e, const char *what)
{
    struct hub_file f = {.path = e->key.data, .etag = e->etag.data};
    char *end;
    if (!e->key.len || !e->size.len || !e->etag.len)
        FAIL(DATA, "%s: list of objects: an object without key, size or ETag", what);
    if (e->key.data[e->key.len - 1] == '/') return STATUS_OK;
    errno = 0;
    f.size = strtoull(e->size.data, &end, 10);
    if (*end || errno || e->size.data[0] < '0' || e->size.data[0] > '9' || f.size >> 50)
        FAIL(DATA, "%s: list of objects: \"%.40s\" is not a size", what, e->size.data);
    if (!listing_is_etag(f.etag))
        FAIL(DATA, "%s: list of objects: \"%.80s\" is not an ETag", what, f.etag);
    listing_hash_object(&f);
    listing_append(l, &f);
    return STATUS_OK;
}

static void add_folder(struct listing *l, const struct text *prefix)
{
    if (prefix->len < 2) return;
    char *path = heap_string(prefix->data, prefix->len - 1); /* without its slash */
    listing_append(l, &(struct hub_file){.path = path, .is_folder = true});
    free(path);
}

static enum status add_element(struct listing *l, const struct xml *x, struct s3_entry *e,
                               struct text *next)
{
#define ROOT "/ListBucketResult"
    if (x->event == XML_START && !strcmp(x->path.data, ROOT "/Contents")) clear_entry(e);
    xml_copy_leaf(x, ROOT "/Contents/Key", &e->key);
    xml_copy_leaf(x, ROOT "/Contents/ETag", &e->etag);
    xml_copy_leaf(x, ROOT "/Contents/Size", &e->size);
    if (xml_is_leaf(x, ROOT "/CommonPrefixes/Prefix")) add_folder(l, &x->text);
    xml_copy_leaf(x, ROOT "/NextContinuationToken", next);
    bool ends_object = x->event == XML_END && !strcmp(x->path.data, ROOT "/Contents");
    if (ends_object) TRY(add_object(l, e, x->what));
    if (l->count > MAX_OBJECTS) FAIL(DATA, "%s: more than %d objects", x->what, MAX_OBJECTS);
    return STATUS_OK;
#undef ROOT
}

enum status s3_listing_add_page(struct listing *l, const char *xml, size_t len, const char *what,
                                struct text *next)
{
    struct xml x;
    struct s3_entry e = {0};
    enum status st = STATUS_OK;
    bool is_list = false, is_truncated = false;
    text_clear(next);
    xml_init(&x, xml, len, what);
    for (;;) {
        TRY_OUT(xml_next(&x));
        if (x.event == XML_EOF) break;
        is_list |= !strcmp(x.path.data, "/ListBucketResult");
        is_truncated |=
            xml_is_leaf(&x, "/ListBucketResult/IsTruncated") && !strcmp(x.text.data, "true");
        TRY_OUT(add_element(l, &x, &e, next));
    }
    if (!is_list) FAIL_OUT(DATA, "%s: expected a ListBucketResult", what);
    if (is_truncated && !next->len)
        FAIL_OUT(
            DATA,
            "%s: the list of objects is truncated and has no NextContinuationToken: the object "
            "store must support ListObjectsV2",
            what);
out:
    text_release(&e.key);
    text_release(&e.etag);
    text_release(&e.size);
    xml_release(&x);
    return st;
}

/* The parameters are in the order of their names, as their signature requires. */
static void write_url(const struct hub_settings *s, const struct hub_path *p,
                      const struct tree_query *q, const char *token, struct text *url)
{
    text_clear(url);
    s3_settings_bucket_url(s, p->repo, url);
    text_adds(url, "/?");
    if (token[0]) {
        text_adds(url, "continuation-token=");
        url_append_escaped(url, token, false);
        text_adds(url, "&");
    }
    if (!q->recursive) text_adds(url, "delimiter=%2F&");
    text_adds(url, "list-type=2&prefix=");
    url_append_escaped(url, q->prefix ? q->prefix : q->folder, false);
    if (!q->prefix && q->folder[0]) text_adds(url, "%2F");
}

enum status s3_listing_fetch(struct client *c, const struct hub_path *p,
                             const struct tree_query *query, struct listing *l)
{
    struct text_sink page = client_text_sink();
    struct text url = {0}, next = {0};
    enum status st = STATUS_OK;
    text_adds(&next, "");
    for (int pages = 0; !pages || next.len; pages++) {
        if (pages == MAX_PAGES) FAIL_OUT(DATA, "%s: the list of objects is too long", p->name);
        write_url(c->settings, p, query, next.data, &url);
        page.sink.restart(&page.sink);
        TRY_OUT(client_get(c, url.data, p->name, &page.sink, NULL));
        TRY_OUT(s3_listing_add_page(l, page.text.data ? page.text.data : "", page.text.len, p->name,
                                    &next));
    }
out:
    text_release(&url);
    text_release(&next);
    text_release(&page.text);
    return st;
}

void s3_listing_commit(const struct listing *l, char commit[COMMIT_HEX])
{
    struct digest d;
    char hex[DIGEST_HEX];
    digest_init(&d, DIGEST_SHA1);
    for (size_t i = 0; i < l->count; i++)
        if (!l->files[i].is_folder) digest_add(&d, l->files[i].hash, strlen(l->files[i].hash));
    digest_hex(&d, hex);
    memcpy(commit, hex, COMMIT_HEX);
}
