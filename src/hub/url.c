// SPDX-License-Identifier: Apache-2.0
#include "hub/url.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

void url_append_escaped(struct text *url, const char *text, bool slashes)
{
    for (; *text; text++) {
        unsigned char byte = (unsigned char)*text;
        bool plain = byte < 128 && (isalnum(byte) || strchr("-._~", byte));
        if (plain || (slashes && byte == '/'))
            text_add(url, text, 1);
        else
            text_addf(url, "%%%02X", byte);
    }
}

bool url_next_page(const char *link, struct text *url)
{
    text_clear(url);
    for (const char *at = link; (at = strchr(at, '<'));) {
        const char *end = strchr(++at, '>');
        if (!end) return false;
        size_t n = strcspn(end, ",");
        char *rest = heap_string(end, n);
        bool is_next = strstr(rest, "rel=\"next\"") || strstr(rest, "rel=next");
        free(rest);
        if (is_next) text_add(url, at, (size_t)(end - at));
        if (is_next) return url->len > 0;
        at = end + n;
    }
    return false;
}

static size_t scheme_length(const char *url)
{
    return !strncasecmp(url, "https://", 8) ? 8 : !strncasecmp(url, "http://", 7) ? 7 : 0;
}

bool url_is_http(const char *url) { return scheme_length(url) > 0; }

/* Length of scheme://host:port; 0: not an http or https URL. */
static size_t origin_length(const char *url)
{
    size_t scheme = scheme_length(url);
    return scheme ? scheme + strcspn(url + scheme, "/?#") : 0;
}

bool url_same_origin(const char *a, const char *b)
{
    size_t n = origin_length(a);
    return n && n == origin_length(b) && !strncasecmp(a, b, n);
}

static bool is_https(const char *url) { return !strncasecmp(url, "https:", 6); }

enum status url_redirect(const char *url, const char *location, struct text *out)
{
    text_clear(out);
    if (origin_length(location)) {
        text_adds(out, location);
    } else if (location[0] == '/' && location[1] == '/') {
        text_add(out, url, strcspn(url, "/"));
        text_adds(out, location);
    } else if (location[0] == '/') {
        text_add(out, url, origin_length(url));
        text_adds(out, location);
    }
    int url_bytes = (int)strcspn(url, "?"), to_bytes = (int)strcspn(location, "?");
    if (to_bytes > 200) to_bytes = 200;
    if (!out->len)
        FAIL(DATA, "%.*s: unsupported redirect to \"%.*s\"", url_bytes, url, to_bytes, location);
    if (is_https(url) && !is_https(out->data))
        FAIL(DATA, "%.*s: refusing the unencrypted redirect to \"%.*s\"", url_bytes, url, to_bytes,
             location);
    return STATUS_OK;
}
